// Notifications: a page that is not seen tells when more sessions need a person than before.
"use strict";
(() => {
  const bell = document.querySelector("[data-notify]");
  if (!bell || !window.Notification) return;
  const isOn = () => Notification.permission === "granted" && localStorage.notify === "yes";
  const numberOf = (text) => parseInt(text, 10) || 0;
  const shown = () => numberOf(document.querySelector("#badge").textContent);
  let known = shown();
  let timer = null;

  function showState() {
    bell.hidden = false;
    bell.setAttribute("aria-pressed", isOn());
  }

  async function look() {
    timer = null;
    if (!document.hidden) return;
    const answer = await fetch("/ui/panels/badge");
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const now = numberOf(page.body.textContent);
    // Each tab looks; by its tag there is one notification.
    if (now > known) {
      const note = new Notification(`${now} ${now === 1 ? "session needs" : "sessions need"} you`, { tag: "leadhand" });
      note.onclick = () => { window.focus(); location.assign("/ui/inbox"); };
    }
    known = now;
  }

  bell.addEventListener("click", async () => {
    if (isOn()) localStorage.notify = "no";
    else if (await Notification.requestPermission() === "granted") localStorage.notify = "yes";
    showState();
  });
  document.addEventListener("visibilitychange", () => { known = shown(); });
  // What the tab with the stream passes on; the page itself fetches nothing while it is hidden.
  new BroadcastChannel("leadhand").onmessage = (event) => {
    const changed = event.data.topics?.some((topic) => topic === "sessions" || topic === "everything");
    if (changed && document.hidden && isOn()) timer ??= setTimeout(look, 1000);
  };
  showState();
})();
