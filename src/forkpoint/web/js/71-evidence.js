// The rows that claims link to: what findings cite (E1, E2, ...), then what the timeline alone rests on (T1, T2, ...).

/** Gives each moment the id of its evidence row, and returns the rows that only the timeline needs. */
function nameMoments(verdict) {
  const ids = new Map(verdict.evidence.map((row) => [`${row.file}\n${row.where}`, row.id]));
  const rows = [];
  for (const moment of verdict.timeline) {
    const key = `${moment.file}\n${moment.where}`;
    if (!ids.has(key)) {
      const id = `T${rows.length + 1}`;
      ids.set(key, id);
      rows.push({ id, file: moment.file, where: moment.where, ranks: moment.ranks, says: moment.says });
    }
    moment.id = ids.get(key);
  }
  return rows;
}

function evidenceLinks(ids) {
  const links = document.createElement("span");
  links.className = "cites";
  ids.forEach((id) => {
    const link = make("a", "cite", id);
    link.href = `#ev-${id}`;
    links.append(link, " ");
  });
  return links;
}

/** Rows that tell of these ranks: those cited by findings, else those of the timeline. */
function evidenceOfRanks(verdict, ranks) {
  const cited = verdict.evidence.filter((row) => row.rank !== null && ranks.has(row.rank)).map((row) => row.id);
  if (cited.length) return cited.slice(0, 4);
  const told = verdict.timeline.filter((moment) => moment.ranks.some((rank) => ranks.has(rank)));
  return [...new Set(told.map((moment) => moment.id))].slice(0, 2);
}

function showEvidence(view, timelineRows) {
  const body = document.getElementById("evidence-body");
  const cited = view.verdict.evidence.map((row) => ({ ...row, ranks: Ranks.of(row.rank === null ? [] : [row.rank]) }));
  const rows = [...cited, ...timelineRows];
  if (!rows.length) {
    body.replaceChildren(nothing("No evidence is cited: nothing was claimed."));
    return;
  }
  const folder = commonFolder(rows.map((row) => row.file));
  const table = make("table", "evidence", evidenceHead(), make("tbody", "", ...rows.map((row) => evidenceRow(row, folder, view))));
  body.replaceChildren(folder ? make("p", "caption", "Files are in ", make("code", "", folder)) : "", table);
  // The browser scrolls to the row and :target lights it; focus follows, so that Tab goes on from there.
  window.addEventListener("hashchange", () => document.querySelector("tr:target")?.focus());
}

function evidenceHead() {
  return make("thead", "", make("tr", "", ...["", "Rank", "File", "Where", "Says"].map((name) => make("th", "", name))));
}

function evidenceRow(row, folder, view) {
  const line = make(
    "tr",
    "",
    make("th", "", row.id),
    make("td", "rank", row.ranks.count ? row.ranks.text(4) : ""),
    make("td", "file", make("code", "", row.file.slice(folder.length))),
    make("td", "where", row.where),
    make("td", "says", row.says),
  );
  line.id = `ev-${row.id}`;
  line.tabIndex = -1;
  view.onChange(() => line.classList.toggle("dim", !view.concerns(row.ranks)));
  return line;
}

function commonFolder(files) {
  let folder = files[0].slice(0, files[0].lastIndexOf("/") + 1);
  for (const file of files) {
    while (!file.startsWith(folder)) folder = folder.slice(0, folder.slice(0, -1).lastIndexOf("/") + 1);
  }
  return folder;
}
