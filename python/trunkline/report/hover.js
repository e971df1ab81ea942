// Shows what the lines of a plot over time are at the pointer. Without it the page lacks nothing else.
for (const plot of document.querySelectorAll("svg[data-values]")) {
  const { axis: [left, right], first_ms, bucket_ms, unit, rows } = JSON.parse(plot.dataset.values);
  const count = rows[0].values.length;
  const tip = document.createElement("div");
  const rule = document.createElement("div");
  tip.className = "tip";
  rule.className = "rule";
  plot.parentNode.append(rule, tip);
  const hide = () => { tip.hidden = rule.hidden = true; };
  const line = (text, colour) => {
    const row = tip.appendChild(document.createElement("div"));
    if (colour !== undefined) row.appendChild(document.createElement("i")).style.background = `var(--s${colour})`;
    row.append(text);
  };
  const time = (at) => {
    const text = new Date(first_ms + at * bucket_ms).toISOString().replace("T", " ");
    return text.slice(count * bucket_ms < 864e5 ? 11 : 0, bucket_ms < 1000 ? 23 : 19);
  };
  const show = (event) => {
    const box = plot.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width - left) / (right - left);
    if (share < 0 || share >= 1) return hide();
    const at = Math.floor(share * count);
    tip.replaceChildren();
    line(`${time(at)} UTC, ${unit}`);
    for (const { name, colour, values } of rows) {
      line(`${name} ${values[at].toLocaleString("en", { maximumSignificantDigits: 4 })}`, colour);
    }
    const frame = plot.parentNode.getBoundingClientRect();
    const x = event.clientX - frame.left;
    Object.assign(rule.style, { left: `${x}px`, top: `${box.top - frame.top}px`, height: `${box.height}px` });
    tip.style.left = share < 0.5 ? `${x + 12}px` : "auto";
    tip.style.right = share < 0.5 ? "auto" : `${frame.width - x + 12}px`;
    tip.hidden = rule.hidden = false;
  };
  hide();
  plot.addEventListener("pointermove", show);
  plot.addEventListener("pointerdown", show);
  plot.addEventListener("pointerleave", hide);
}
