// Only in pages that `forkpoint serve` sends: loads the page again when there is a newer one.
// A page in a hidden tab lets go of its connection: browsers have six for one server. It asks again when it is seen.
{
  const address = document.getElementById("live").textContent;
  let stream = null;
  const follow = () => {
    stream?.close();
    stream = null;
    if (document.hidden) return;
    stream = new EventSource(address);
    stream.addEventListener("changed", () => {
      stream.close();
      location.reload();
    });
  };
  document.addEventListener("visibilitychange", follow);
  follow();
}
