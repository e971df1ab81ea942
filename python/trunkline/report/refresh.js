// Reads the page anew from time to time, and leaves the reader where they were: the place, and what was opened.
{
  const kept = `trunkline ${location.pathname}`;
  const opened = () => [...document.querySelectorAll("details")];
  history.scrollRestoration = "manual";
  try {
    const { x, y, names, scrolls } = JSON.parse(sessionStorage.getItem(kept) ?? "{}");
    for (const details of opened()) details.open = names?.includes(details.querySelector("summary").textContent) ?? false;
    document.querySelectorAll(".scroll").forEach((box, at) => { box.scrollLeft = scrolls?.[at] ?? 0; });
    if (y !== undefined) scrollTo(x, y);
  } catch {
    // A page of another version.
  }
  const refresh = () => {
    // Not while the reader selects text.
    if (document.hidden || !getSelection().isCollapsed) return;
    const names = opened().filter((details) => details.open).map((details) => details.querySelector("summary").textContent);
    const scrolls = [...document.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    sessionStorage.setItem(kept, JSON.stringify({ x: scrollX, y: scrollY, names, scrolls }));
    location.reload();
  };
  setInterval(refresh, document.documentElement.dataset.refresh * 1000);
}
