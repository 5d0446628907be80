// The script of the dashboard: keeps the panels of a page current, and adds keys and confirmations.
"use strict";
(() => {
  const one = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Sign-in: the secret of a link is behind the #, which no server and no log gets.
  const byLink = one("#by-link");
  if (byLink && location.hash.length > 1) {
    const secret = location.hash.slice(1);
    history.replaceState(null, "", location.pathname);
    byLink.elements.link.value = secret;
    byLink.hidden = false;
    one("#by-token").hidden = true;
    byLink.submit();
    return;
  }

  // Panels: the stream names what changed, and each panel of that topic is fetched again, at most
  // once in EVERY ms, and not while the page is hidden.
  const EVERY = 250;
  const SLOW = 10000;
  const stale = new Set();
  let timer = null;
  let last = 0;

  function refresh(topics) {
    topics.forEach((topic) => stale.add(topic));
    if (timer === null && !document.hidden && stale.size) {
      timer = setTimeout(flush, Math.max(0, last + EVERY - performance.now()));
    }
  }

  function flush() {
    timer = null;
    if (document.hidden) return;
    const everything = stale.has("everything");
    const panels = all("[data-panel]").filter((panel) => everything || stale.has(panel.dataset.topic));
    if (panels.some((panel) => panel.classList.contains("htmx-request"))) {
      timer = setTimeout(flush, EVERY);  // the answer that is on its way may be older than the change
      return;
    }
    last = performance.now();
    stale.clear();
    panels.forEach((panel) => {
      if (!isBusy(panel)) htmx.trigger(panel, "refresh");
      else stale.add(panel.dataset.topic);
    });
  }

  // A panel in which somebody writes stays as it is until the text is sent or left.
  function isBusy(panel) {
    const at = document.activeElement;
    const writes = at && panel.contains(at) && at.matches("textarea, select, input:not([type=checkbox])");
    return Boolean(writes && (at.value || at.matches("select")));
  }

  const stream = one("#stream");
  const live = one("#live");

  function show(state, text) {
    if (!live || live.dataset.state === state) return;
    live.dataset.state = state;
    live.textContent = text;
  }

  if (stream) {
    stream.addEventListener("changed", (event) => {
      const found = JSON.parse(event.detail.data);
      refresh(found);
    });
    // After each connection everything is fetched: what changed meanwhile is not in the stream.
    stream.addEventListener("htmx:sse:after:connection", () => {
      show("live", "Live");
      refresh(["everything"]);
    });
    stream.addEventListener("htmx:sse:error", () => show("cut", "Not connected"));
    stream.addEventListener("htmx:sse:before:connection", (event) => {
      if (event.detail.connection.attempt > 1) show("cut", "Not connected");
    });
    document.addEventListener("visibilitychange", () => refresh(document.hidden ? [] : ["everything"]));
    addEventListener("online", () => refresh(["everything"]));
    document.addEventListener("focusout", () => refresh([]));
    setInterval(() => {
      if (live.dataset.state !== "live") refresh(["everything"]);
      else if (one("[data-every]")) refresh(["sessions"]);
    }, SLOW);
  }
  document.addEventListener("leadhand-changed", () => refresh(["everything"]));

  // Messages: good news leaves by itself, bad news stays until it is closed.
  document.addEventListener("htmx:after:swap", () => {
    all("#notices .good:not([data-leaves])").forEach((notice) => {
      notice.dataset.leaves = "";
      setTimeout(() => notice.remove(), 6000);
    });
    showTimes();
    all("[data-follow]").forEach(follow);
  });
  document.addEventListener("htmx:after:request", (event) => {
    const ctx = event.detail.ctx;
    const form = ctx && ctx.sourceElement;
    if (form && form.matches("[data-reset]") && ctx.response && ctx.response.status < 300) {
      form.reset();
      const pop = form.closest("details");
      if (pop) pop.open = false;
    }
  });
  document.addEventListener("htmx:error", (event) => {
    const ctx = event.detail.ctx;
    if (ctx && ctx.sourceElement && ctx.sourceElement.matches("form")) tell("The API did not answer. Nothing is known of what you sent; look, and send it again.");
  });

  function tell(text) {
    const notice = document.createElement("div");
    notice.className = "notice bad";
    const line = document.createElement("p");
    line.textContent = text;
    notice.append(line);
    one("#notices").append(notice);
    setTimeout(() => notice.remove(), 12000);
  }

  // Output follows its end, unless the reader has scrolled up.
  function follow(element) {
    const away = element.dataset.seen && element.scrollTop + element.clientHeight < Number(element.dataset.seen) - 40;
    element.dataset.seen = element.scrollHeight;
    if (!away) element.scrollTop = element.scrollHeight;
  }

  // Times: exact in the reader's zone on hover, ages that grow.
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

  function showTimes() {
    all("time").forEach((element) => {
      const at = new Date(element.dateTime);
      element.title = exact.format(at);
      if (element.dataset.how === "clock") {
        element.textContent = at.toLocaleTimeString();
        return;
      }
      const seconds = Math.floor((Date.now() - at) / 1000);
      if (seconds < 0) return;
      const unit = UNITS.find(([size]) => seconds >= size);
      const text = unit ? `${Math.floor(seconds / unit[0])} ${unit[1]} ago` : "now";
      if (element.textContent !== text) element.textContent = text;
    });
  }
  showTimes();
  all("[data-follow]").forEach(follow);
  setInterval(() => document.hidden || showTimes(), 5000);

  // Confirmations, and texts that an action needs.
  const dialog = one("#confirm");
  document.addEventListener("htmx:confirm", (event) => {
    const form = event.target;
    const { entryLabel, entryName } = form.dataset;
    event.preventDefault();
    const entry = one("#confirm-entry");
    entry.hidden = !entryLabel;
    one("textarea", entry).value = "";
    one("span", entry).textContent = entryLabel || "";
    one("#confirm-text").textContent = entryLabel ? "" : event.detail.ctx.confirm;
    dialog.returnValue = "no";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") return event.detail.dropRequest();
      if (entryLabel) addField(event.detail.ctx, entryName, one("textarea", entry).value);
      return event.detail.issueRequest();
    };
    dialog.showModal();
  });

  function addField(ctx, name, value) {
    const body = ctx.request.body;
    if (body && typeof body.set === "function") body.set(name, value);
  }

  // Clicks.
  document.addEventListener("click", (event) => {
    const at = event.target.closest("[data-close], [data-close-detail], [data-copy], [data-keys]");
    if (!at) return;
    if (at.matches("[data-close]")) at.closest("[data-notice]").remove();
    if (at.matches("[data-close-detail]")) at.closest(".detail").remove();
    if (at.matches("[data-keys]")) one("#keys").showModal();
    if (at.matches("[data-copy]")) navigator.clipboard.writeText(at.dataset.copy).then(() => { at.textContent = "Copied"; });
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("[data-filters]");
    if (form && event.target.matches("input[type=checkbox], select")) form.requestSubmit();
  });

  // Keys.
  const PLACES = { i: "inbox", s: "sessions", f: "flows", p: "plans", w: "fleet", e: "economics" };
  let current = -1;

  function move(by) {
    const entries = all("[data-entry]");
    if (!entries.length) return;
    const at = entries.findIndex((entry) => entry.classList.contains("at"));
    current = Math.min(entries.length - 1, Math.max(0, (at < 0 && by > 0 ? -1 : at) + by));
    entries.forEach((entry) => entry.classList.remove("at"));
    entries[current].classList.add("at");
    entries[current].focus({ preventScroll: true });
    entries[current].scrollIntoView({ block: "nearest" });
  }

  function open() {
    const entry = one("[data-entry].at");
    const target = entry && (entry.matches("[data-open]") ? entry : one("[data-open]", entry));
    if (target) target.click();
  }

  function next() {
    const entries = all("#list article[data-entry] [data-open]");
    if (location.pathname === "/ui/inbox" && entries.length) entries[0].click();
    else location.assign("/ui/inbox");
  }

  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (at.matches("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") at.blur();
      return;
    }
    if (one("dialog[open]")) return;
    if (event.key === "Enter" && !at.matches("[data-entry]")) return;
    const tab = all(".tabs a")[Number(event.key) - 1];
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "Enter") open();
    else if (event.key === "a") next();
    else if (event.key === "r" && one("[data-key=r]")) one("[data-key=r]").click();
    else if (event.key === "?") one("#keys").showModal();
    else if (event.key === "/" && one("[data-search]")) one("[data-search]").focus();
    else if (event.key === "/") location.assign("/ui/sessions");
    else if (tab) tab.click();
    else if (PLACES[event.key]) location.assign(`/ui/${PLACES[event.key]}`);
    else return;
    event.preventDefault();
  });
})();
