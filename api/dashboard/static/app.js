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
  const SLOW = 5000;
  const stale = new Set();
  let timer = null;
  let last = 0;

  const isPaused = () => document.body.classList.contains("paused");

  function pause(button) {
    const paused = document.body.classList.toggle("paused");
    button.setAttribute("aria-pressed", paused);
    button.textContent = paused ? "Continue" : "Pause";
    refresh([]);
  }

  function refresh(topics) {
    topics.forEach((topic) => stale.add(topic));
    if (timer === null && !document.hidden && !isPaused() && stale.size) {
      timer = setTimeout(flush, Math.max(0, last + EVERY - performance.now()));
    }
  }

  function flush() {
    timer = null;
    if (document.hidden || isPaused()) return;
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

  // The tabs of a browser share one stream: the tab that has the lock opens it, and passes on what it hears.
  // Where a page gets no locks (http to another host) each tab has its own stream.
  const QUIET = 15000;
  const stream = one("#stream");
  const live = one("#live");
  const channel = stream && new BroadcastChannel("leadhand");
  const me = { tab: Math.random().toString(36), session: stream && stream.dataset.session };
  const shown = new Map();  // of the leader: the session that each other tab shows
  let source = null;
  let watched = [];
  let heard = Date.now();

  function show(state, text) {
    if (live.dataset.state === state) return;
    live.dataset.state = state;
    live.textContent = text;
  }

  function hear(message) {
    if (message.kind === "who") channel.postMessage({ kind: "here", ...me });
    else if (message.kind === "gone") shown.delete(message.tab);
    else if (message.kind === "here") {
      shown.set(message.tab, message.session);
      if (source && message.session && !watched.includes(message.session)) connect();
    } else if (message.kind === "cut") show("cut", "Not connected");
    else {
      heard = Date.now();
      show("live", "Live");
      refresh(message.topics);
    }
  }

  function pass(message) {
    if (navigator.locks) channel.postMessage(message);
    hear(message);
  }

  function connect() {
    if (source) source.close();
    watched = [...new Set([me.session, ...shown.values()])].filter(Boolean).slice(0, 32);
    const mine = source = new EventSource(`/ui/stream?${new URLSearchParams(watched.map((id) => ["session", id]))}`);
    // After each connection everything is fetched: what changed meanwhile is not in the stream.
    mine.addEventListener("hello", () => pass({ topics: ["everything"] }));
    mine.addEventListener("changed", (event) => pass({ topics: JSON.parse(event.data) }));
    mine.addEventListener("beat", () => pass({ topics: [] }));
    mine.onerror = () => {
      pass({ kind: "cut" });
      if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === source && connect(), 3000);
    };
  }

  function lead(how) {
    if (!navigator.locks) return connect();
    return navigator.locks.request("leadhand-stream", how, () => new Promise(() => {
      shown.clear();
      channel.postMessage({ kind: "who" });
      setTimeout(connect, 50);
    })).catch(() => {  // another tab took over
      if (source) source.close();
      source = null;
      lead({});
    });
  }

  if (stream) {
    channel.onmessage = (event) => hear(event.data);
    channel.postMessage({ kind: "here", ...me });
    addEventListener("pagehide", () => channel.postMessage({ kind: "gone", tab: me.tab }));
    lead({});
    document.addEventListener("visibilitychange", () => refresh(document.hidden ? [] : ["everything"]));
    addEventListener("online", () => refresh(["everything"]));
    document.addEventListener("focusout", () => refresh([]));
    setInterval(() => {
      if (document.hidden) return;
      if (Date.now() - heard > QUIET) {  // the connection or the leading tab is frozen
        heard = Date.now();
        pass({ kind: "cut" });
        if (source) connect();
        else lead({ steal: true });
      }
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
    const form = event.detail.ctx?.sourceElement;
    if (!form?.matches("[data-reset]") || !(event.detail.ctx.response?.status < 300)) return;
    form.reset();
    if (form.closest("details")) form.closest("details").open = false;
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx?.sourceElement?.matches("form")) tell("The API did not answer. Nothing is known of what you sent; look, and send it again.");
  });

  function tell(text) {
    const notice = Object.assign(document.createElement("p"), { className: "notice bad", textContent: text });
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
      const seconds = Math.floor((Date.now() - at) / 1000);
      const unit = UNITS.find(([size]) => seconds >= size);
      const ago = unit ? `${Math.floor(seconds / unit[0])} ${unit[1]} ago` : "now";
      const text = element.dataset.how === "clock" ? at.toLocaleTimeString() : ago;
      if (element.textContent !== text && (seconds >= 0 || text !== ago)) element.textContent = text;
    });
  }
  showTimes();
  all("[data-follow]").forEach(follow);
  setInterval(() => document.hidden || showTimes(), 5000);

  // Confirmations, and texts that an action needs.
  const dialog = one("#confirm");
  document.addEventListener("htmx:confirm", (event) => {
    const form = event.target;
    const { entryLabel, entryName, entryValue } = form.dataset;
    event.preventDefault();
    const entry = one("#confirm-entry");
    entry.hidden = !entryLabel;
    one("textarea", entry).value = entryValue || "";
    one("span", entry).textContent = entryLabel || "";
    one("#confirm-text").textContent = entryLabel ? "" : event.detail.ctx.confirm;
    dialog.returnValue = "no";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") return event.detail.dropRequest();
      if (entryLabel) event.detail.ctx.request.body.set(entryName, one("textarea", entry).value);
      return event.detail.issueRequest();
    };
    dialog.showModal();
  });


  // Clicks.
  document.addEventListener("click", (event) => {
    const at = event.target.closest("[data-close], [data-close-detail], [data-copy], [data-keys], [data-pause]");
    if (!at) return;
    if (at.matches("[data-close]")) at.closest("[data-notice]").remove();
    if (at.matches("[data-close-detail]")) at.closest(".detail").remove();
    if (at.matches("[data-pause]")) pause(at);
    if (at.matches("[data-keys]")) one("#keys").showModal();
    if (at.matches("[data-copy]")) navigator.clipboard.writeText(at.dataset.copy).then(() => { at.textContent = "Copied"; });
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("[data-filters]");
    if (form && event.target.matches("input[type=checkbox], select")) form.requestSubmit();
  });

  // Keys.
  const PLACES = { i: "inbox", s: "sessions", f: "flows", p: "plans", w: "fleet", e: "economics" };
  const LETTERS = { r: "[data-key=r]", o: "[data-key=o]", h: "#hint > summary", x: "#do-exit button", t: "#do-rename button" };
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
    const entry = location.pathname === "/ui/inbox" && one("#list article[data-entry] [data-open]");
    if (entry) entry.click();
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
    else if (event.key === "z") pause(one("[data-pause]"));
    else if (LETTERS[event.key] && one(LETTERS[event.key])) one(LETTERS[event.key]).click();
    else if (event.key === "?") one("#keys").showModal();
    else if (event.key === "/" && one("[data-search]")) one("[data-search]").focus();
    else if (event.key === "/") location.assign("/ui/sessions");
    else if (tab) tab.click();
    else if (PLACES[event.key]) location.assign(`/ui/${PLACES[event.key]}`);
    else return;
    event.preventDefault();
  });
})();
