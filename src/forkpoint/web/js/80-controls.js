// Search, group, legend, theme, help, and the keys that work everywhere.

const HELP = [
  ["/", "search"],
  ["Tab", "next link, picture or button"],
  ["Arrows", "in a picture: move the selected rank"],
  ["Home, End", "in a picture: first and last"],
  ["+ − 0", "in the heat map: zoom in, zoom out, show all"],
  ["Shift + arrows", "in the heat map: pan"],
  ["Arrows, Home, End", "in a replay: step back and on, first and last"],
  ["Enter", "on E1, T1 ...: go to that row of evidence"],
  ["Esc", "close help, leave and clear the search, drop the selection"],
  ["?", "this help"],
];

const SEARCHES = [
  ["5  or  rank:5", "one rank"],
  ["rank:0-7  rank:1,3  rank:0-64/8", "several, every eighth"],
  ["host:node-52", "the ranks of a host"],
  ["group:dp", "the members of groups of that name"],
  ["state:behind", "ranks in a state"],
  ["host:node-52 state:lost", "both must hold"],
];

function showControls(view) {
  const search = document.getElementById("search");
  document.getElementById("bar").addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", () => view.filter(search.value, view.states));
  document.getElementById("clear").addEventListener("click", () => {
    search.value = "";
    view.filter("", new Set());
    search.focus();
  });
  showGroups(view);
  showLegend(view);
  showHelp();
  view.onChange(() => showFound(view));
  showTheme(view);
  document.addEventListener("keydown", (event) => globalKey(event, view));
}

function setQuery(query) {
  const search = document.getElementById("search");
  search.value = query;
  search.dispatchEvent(new Event("input"));
}

function showGroups(view) {
  const select = document.getElementById("group");
  const { groups, groupsLeftOut } = view.job;
  select.replaceChildren(
    ...groups.map((group, g) => {
      const option = document.createElement("option");
      option.value = String(g);
      option.textContent = `${groupTitle(group)}, ${plural(group.ranks.length, "rank")}${group.isDivergence ? " ◆" : ""}`;
      return option;
    }),
  );
  if (groupsLeftOut) {
    const rest = document.createElement("option");
    rest.disabled = true;
    rest.textContent = `${plural(groupsLeftOut, "group")} not drawn`;
    select.append(rest);
  }
  select.value = String(view.group);
  select.disabled = groups.length < 2;
  select.hidden = document.querySelector("label[for=group]").hidden = !groups.length;
  select.addEventListener("change", () => view.choose(Number(select.value)));
}

function showFound(view) {
  const passing = view.passing.reduce((sum, one) => sum + one, 0);
  const total = view.passing.length;
  const text = passing ? `${number(passing)} of ${plural(total, "rank")}` : "no rank matches";
  document.getElementById("found").textContent = view.filtered ? text : plural(total, "rank");
  document.getElementById("clear").hidden = !view.filtered;
}

/** Always in sight, and a filter: a press shows only ranks in that state. */
function showLegend(view) {
  const legend = document.getElementById("legend");
  const buttons = STATES.map((state, s) => {
    const button = make("button", "", make("span", `badge state-${state.name}`, state.letter), state.name);
    button.type = "button";
    button.title = state.says;
    button.addEventListener("click", () => {
      const states = new Set(view.states);
      if (!states.delete(s)) states.add(s);
      view.filter(view.query, states);
    });
    view.onChange(() => button.setAttribute("aria-pressed", String(view.states.has(s))));
    return button;
  });
  legend.replaceChildren(...buttons, make("span", "key", make("i", "swatch suspect"), "suspect"));
}

function showTheme(view) {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const name = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${button.textContent.toLowerCase()} colours`);
    view.changed();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();
}

function showHelp() {
  const dialog = document.getElementById("help");
  const title = make("h2", "", "Keys and searches");
  title.id = "help-h";
  const close = make("button", "quiet", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  const listed = (pairs) => make("dl", "", ...pairs.flatMap(([key, says]) => [make("dt", "", make("kbd", "", key)), make("dd", "", says)]));
  dialog.replaceChildren(title, listed(HELP), listed(SEARCHES), close);
  document.getElementById("help-open").addEventListener("click", () => dialog.showModal());
}

function globalKey(event, view) {
  const dialog = document.getElementById("help");
  const typing = event.target.matches("input, select");
  if (dialog.open || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") escapeAll(view);
  else if (!typing && event.key === "/") document.getElementById("search").focus();
  else if (!typing && event.key === "?") dialog.showModal();
  else return;
  event.preventDefault();
}

function escapeAll(view) {
  document.getElementById("tip").hidden = true;
  document.getElementById("search").value = "";
  if (document.activeElement.id === "search") document.activeElement.blur();
  view.selected = -1;
  view.filter("", new Set());
}
