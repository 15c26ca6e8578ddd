// The main part of the page is made anew by the server; what was unfolded, scrolled to or focused stays so.
"use strict";

(() => {
  // The places of a section that one may be at, in their order.
  function places(section) {
    return [...section.querySelectorAll("summary, [tabindex]")];
  }

  function keep(before, made) {
    for (const section of before.querySelectorAll("section")) {
      const now = made.querySelector(`#${section.id}`);
      if (!now) continue;
      const were = places(section), are = places(now);
      were.forEach((was, number) => {
        const is = are[number];
        if (!is) return;
        if (was.parentElement.open) is.parentElement.open = true;
        is.scrollLeft = was.scrollLeft;
        is.scrollTop = was.scrollTop;
        if (was.dataset.focused) is.focus({ preventScroll: true });
      });
    }
  }

  async function renew() {
    let wait = 1000;
    if (!document.hidden) {
      try {
        const answer = await fetch("/main", { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
        const before = document.querySelector("main");
        if (before.contains(document.activeElement)) document.activeElement.dataset.focused = "yes";
        before.after(made);
        keep(before, made);
        before.remove();
        document.body.classList.remove("stale");
      } catch {
        document.body.classList.add("stale");
        wait = 3000;
      }
    }
    setTimeout(renew, wait);
  }

  // On a narrow screen the newest part of the timeline is to be seen first.
  document.querySelectorAll("#timeline .wide").forEach((it) => { it.scrollLeft = it.scrollWidth; });
  setTimeout(renew, 1000);
})();
