// Paper: what custom.css cannot do. A dark page is printed with the light colours; where a browser has no
// `::details-content`, what is folded is opened. Everything is as it was afterwards.
(() => {
  const root = document.documentElement;
  const folded = "details:not(.hide, .sd-dropdown)";
  let opened = [];
  let theme;
  addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    if (!CSS.supports("selector(::details-content)")) {
      opened = [...document.querySelectorAll(folded)].filter((one) => !one.open);
    }
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    root.dataset.theme = theme;
    for (const one of opened) one.open = false;
    opened = [];
  });
})();
