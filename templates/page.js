"use strict";
// Without this script the page has the same words: it only adds buttons that copy, and sorts.
for (const pre of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(pre.querySelector("code").textContent.trimEnd()).then(() => {
      button.textContent = "Copied";
    });
  });
  pre.append(button);
}
for (const table of document.querySelectorAll("details table")) {
  table.querySelectorAll("th").forEach((head, column) => {
    if (!head.textContent) return;
    head.setAttribute("aria-sort", "none");
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((h) => h.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const text = (row) => row.cells[column].textContent.replaceAll(",", "");
      const order = new Intl.Collator("en", { numeric: true }).compare;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => (up ? 1 : -1) * order(text(a), text(b)));
      table.tBodies[0].append(...rows);
    });
  });
}
