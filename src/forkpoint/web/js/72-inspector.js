// The selected rank in words, beside the mesh.

function showInspector(view) {
  const box = document.getElementById("inspector");
  const i = view.selected;
  if (i < 0) {
    box.replaceChildren(make("p", "nothing", "Select a rank: click a tile, or Tab to the picture and use the arrow keys."));
    return;
  }
  const { job, verdict } = view;
  const rank = job.ranks[i];
  const only = make("button", "quiet", "Show only this rank");
  only.type = "button";
  only.addEventListener("click", () => setQuery(`rank:${rank}`));
  const cohort = job.cohort[i] < 0 ? null : verdict.divergence?.cohorts[job.cohort[i]];
  const state = STATES[job.state[i]];
  box.replaceChildren(
    make("h3", "", stateBadge(job.state[i]), `Rank ${rank}`, job.suspect[i] ? make("span", "flag", "suspect") : null),
    inspectorList([
      ["Place", view.placeOf(i) || "host not known"],
      ["Mesh", job.axes.map((axis, a) => `${short(axis.name, 20)} ${job.position[i * job.axes.length + a]}`).join(", ")],
      ["State", `${state.name}: ${state.says}`],
      ["Group", progressInGroup(view, rank)],
      ["Cohort", cohort ? `${cohort.ranks.named()}: ${cohort.op ?? cohort.where ?? cohort.role}` : ""],
    ]),
    evidenceOfRank(verdict, rank),
    only,
  );
}

function inspectorList(rows) {
  const list = make("dl", "");
  rows.filter(([, text]) => text).forEach(([name, text]) => list.append(make("dt", "", name), make("dd", "", words(text, 200))));
  return list;
}

function progressInGroup(view, rank) {
  const group = view.job.groups[view.group];
  const member = group ? group.ranks.indexOf(rank) : -1;
  if (member < 0) return group ? `not in ${groupTitle(group)}` : "";
  return `${groupTitle(group)}: ${progressOf(group, member)}`;
}

function evidenceOfRank(verdict, rank) {
  const ids = evidenceOfRanks(verdict, Ranks.of([rank]));
  return ids.length ? make("p", "detail", "Evidence ", evidenceLinks(ids)) : "";
}
