// The pointer over the timeline shows its column: node, phase and bytes by component. The page works without it.
(() => {
  const svg = document.getElementById("timeline");
  const source = document.getElementById("timeline-data");
  const tip = document.getElementById("tip");
  const cursor = document.getElementById("cursor");
  if (!svg || !source || !tip || !cursor) return;
  const data = JSON.parse(source.textContent);
  if (!data) return;
  const [left, right, width] = ["left", "right", "width"].map((key) => Number(svg.dataset[key]));
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const size = (bytes) => {
    let unit = 0;
    while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
    return `${Number(bytes.toFixed(2))} ${units[unit]}`;
  };
  const line = (name, value) => {
    const row = document.createElement("div");
    for (const text of [name, value]) row.appendChild(document.createElement("span")).textContent = text;
    return row;
  };
  svg.addEventListener("pointerleave", () => { tip.hidden = true; cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const index = Math.floor(((x - left) / (right - left)) * data.columns.length);
    const column = data.columns[index];
    if (!column) { tip.hidden = true; return; }
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x);
    const head = document.createElement("b");
    head.textContent = column.node;
    tip.replaceChildren(head, line(data.phases[column.phase], `tick ${column.tick}`));
    column.bytes.map((bytes, i) => [data.components[i], bytes]).reverse().filter((row) => row[1] > 0)
      .forEach((row) => tip.appendChild(line(row[0], size(row[1]))));
    tip.appendChild(line("in all", size(column.bytes.reduce((a, b) => a + b, 0))));
    tip.hidden = false;
    tip.style.left = `${Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  });
})();
