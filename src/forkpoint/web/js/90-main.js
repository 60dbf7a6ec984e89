// Reads what the report carries, shows the words at once, then the pictures.

async function main() {
  const verdict = readVerdict();
  const timelineRows = nameMoments(verdict);
  let job = null;
  let problem = "";
  try {
    job = await readPicture();
  } catch (error) {
    problem = `The pictures could not be unpacked (${error.message}); the words of this report are complete.`;
  }
  const view = new View(job ?? jobWithoutPicture(verdict), verdict);
  showAnswer(view);
  const draw = job ? drawn(view) : withoutPictures(problem || "This report was made without pictures.");
  performance.mark("forkpoint:first-picture");
  showLanes(view);
  showHypotheses(view);
  showStacks(view);
  showTimeline(view);
  showArrivals(view);
  showFindings(view);
  showEvidence(view, timelineRows);
  view.onChange(draw);
  showControls(view);
  listenToPrinter(view);
  performance.mark("forkpoint:ready");
  document.documentElement.dataset.ready = "yes";
}

/** Makes the drawn pictures; returns what redraws them all. */
function drawn(view) {
  if (!view.job.ranks.length) return withoutPictures("No rank is known, so there is nothing to draw.");
  if (view.job.state.every((state) => STATES[state].name === "silent")) return withoutRanks();
  const mesh = new Mesh(view);
  const skyline = view.job.groups.length ? new Skyline(view) : null;
  const heat = view.job.groups.length ? new HeatMap(view) : null;
  document.getElementById("mesh-says").textContent = meshSays(view);
  if (!skyline) withoutProgress();
  const drawAll = () => {
    const colours = readColours();
    mesh.draw(colours);
    showInspector(view);
    if (!skyline) return;
    document.getElementById("skyline-says").textContent = skylineSays(view);
    skyline.draw(colours);
    heat.draw(colours);
  };
  const draw = () => timed("redraw", drawAll);
  draw();
  new ResizeObserver(draw).observe(document.querySelector("main"));
  return draw;
}

/** Paper has its own greys, and what is drawn has to be drawn again for it. */
function listenToPrinter(view) {
  const paper = (on) => {
    document.documentElement.toggleAttribute("data-paper", on);
    view.changed();
  };
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));
  window.addEventListener("beforeprint", () => paper(true));
  window.addEventListener("afterprint", () => paper(false));
}

/** Nothing was recorded of any rank: stacks, logs or values alone have panels of their own. */
function withoutRanks() {
  ["mesh", "legend", "bar"].forEach(leaveOut);
  withoutProgress();
  return () => {};
}

function withoutProgress() {
  document.getElementById("skyline-canvas").remove();
  leaveOut("skyline");
  leaveOut("heat");
}

function withoutPictures(reason) {
  document.getElementById("mesh-canvas").remove();
  document.getElementById("inspector").remove();
  document.getElementById("mesh-says").textContent = reason;
  withoutProgress();
  return () => {};
}

main();
