// Who arrives last, and how often: a table, and only where the dumps tell.

function showArrivals(view) {
  const rows = view.job.arrivals;
  const section = document.getElementById("arrivals");
  section.hidden = !rows.length;
  if (!rows.length) return;
  const odd = rows.filter((row) => row.odd).length;
  const says = odd
    ? "Marked: a rank that is last more often than chance would have it. The others wait for it every time."
    : "No rank is last much more often than the others.";
  const heads = ["Group", "Called from", "Compared", "Met", "Last, how often, and how late"];
  const table = make(
    "table",
    "arrivals",
    make("thead", "", make("tr", "", ...heads.map((name) => make("th", "", name)))),
    make("tbody", "", ...rows.map((row) => arrivalsRow(row, view))),
  );
  document.getElementById("arrivals-body").replaceChildren(make("p", "caption", says), table);
}

function arrivalsRow(row, view) {
  const line = make(
    "tr",
    row.odd ? "odd" : "",
    make("th", "", row.desc ? `${row.group} (${row.desc})` : row.group),
    make("td", "", make("code", "", row.site ?? "not recorded")),
    make("td", "", row.host === null ? `all ${row.compared}` : `${row.compared} on ${row.host}: other clocks do not compare`),
    make("td", "", number(row.met)),
    make("td", "", row.last.map(([rank, times, late]) => `rank ${rank}: ${times} times, ${late} ms`).join("; ")),
  );
  const ranks = Ranks.of(row.last.map(([rank]) => rank));
  view.onChange(() => line.classList.toggle("dim", !view.concerns(ranks)));
  return line;
}
