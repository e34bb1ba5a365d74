// Asks the API for all that the page shows. Every text from outside is set as text, never as markup.
"use strict";

const STATES = ["registered", "running", "failed", "parked", "done", "cancelled"];
const KEY = "osrdyne-jobs-token";
const QUESTIONS = {
  redo: ["Give job ID all its attempts again?", "Redo it"],
  cancel: ["Cancel job ID?", "Cancel it"],
  delete: ["Delete job ID and its attempts? This cannot be undone.", "Delete it"],
};
const element = (id) => document.getElementById(id);

let shownJob = null;
let nextAfter = null;
// Settles the question that is open.
let answer = null;
// Answers that come after a later question are dropped.
const latest = {};

class Refused extends Error {}

async function ask(method, path) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (method === "POST") headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers });
  } catch {
    throw new Error("The server does not answer.");
  }
  if (response.status === 401) throw new Refused();
  if (response.status === 204) return null;
  const body = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
  if (!response.ok) throw new Error(body.error);
  return body;
}

function say(text, bad = false) {
  element("message").textContent = text;
  element("message").classList.toggle("bad", bad);
}

// Run an action and show what went wrong.
async function trying(action) {
  try {
    await action();
  } catch (error) {
    if (error instanceof Refused) askForToken();
    else say(error.message, true);
  }
}

function askForToken() {
  const wrong = sessionStorage.getItem(KEY) !== null;
  sessionStorage.removeItem(KEY);
  element("content").hidden = element("forget").hidden = true;
  element("login").hidden = false;
  say(wrong ? "This is not the token." : "", wrong);
  element("token").focus();
}

// --- what is shown ---

function make(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== null && text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function link(text, action) {
  const made = make("button", text, "link");
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

const jobLink = (id) => link(`job ${id}`, () => trying(() => showJob(id)));

function time(text) {
  return text === null ? "" : new Date(text).toLocaleString();
}

function duration(seconds) {
  const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [name, size] = units.find(([, one]) => seconds >= one) ?? units[3];
  const whole = Math.floor(seconds / size);
  return `${whole} ${name}${name === "day" && whole !== 1 ? "s" : ""}`;
}

// Why an attempt failed, and what it raised.
function because(run) {
  const made = make("span", run.reason);
  if (run.traceback === null) return made;
  const more = make("details");
  more.append(make("summary", "Traceback"), make("pre", run.traceback));
  made.append(more);
  return made;
}

// Fill a table; a cell is a text or an element. The labels are for narrow windows, which show no head.
function fill(id, rows) {
  const table = element(id);
  const heads = [...table.tHead.rows[0].cells];
  table.tBodies[0].replaceChildren(...rows.map((cells) => {
    const row = make("tr");
    row.append(...cells.map((cell, place) => {
      const made = make("td", null, heads[place].className);
      made.dataset.label = heads[place].textContent;
      made.append(cell ?? "");
      return made;
    }));
    return row;
  }));
  table.hidden = rows.length === 0;
}

function describe(id, pairs) {
  element(id).replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", name), make("dd", value)]));
}

async function showFigures() {
  const mine = (latest.figures = {});
  const figures = await ask("GET", "api/jobs/figures");
  if (latest.figures !== mine) return;
  fill("states", figures.states.map((one) => {
    const oldest = make("span");
    if (one.oldest !== null) oldest.append(jobLink(one.oldest), `, registered ${duration(one.age)} ago`);
    return [link(one.state, () => showState(one.state)), one.jobs.toLocaleString(), oldest];
  }));
  const ended = Object.entries(figures.runs).map(([outcome, number]) => `${number.toLocaleString()} ${outcome}`);
  describe("facts", [
    ["Runs of the last hour", ended.join(", ")],
    ["Redo is late by", figures.redo_lag > 0 ? duration(figures.redo_lag) : "nothing"],
    ["Leases that ended unnoticed", figures.expired_leases.toLocaleString()],
  ]);
  fill("causes", figures.causes.map((one) => [
    one.jobs.toLocaleString(), one.type, one.reason, jobLink(one.latest),
  ]));
  element("no-causes").hidden = figures.causes.length > 0;
}

function showState(state) {
  element("filter").reset();
  element("state").value = state;
  return trying(async () => {
    await showList(0);
    element("list-title").scrollIntoView();
  });
}

async function showList(after) {
  const mine = (latest.list = {});
  const asked = new URLSearchParams({ after, most: 50 });
  for (const name of ["type", "resource", "state", "history"]) {
    if (element(name).value) asked.set(name, element(name).value);
  }
  if (element("older").value) asked.set("older_than", String(Number(element("older").value) * 60));
  const page = await ask("GET", `api/jobs?${asked}`);
  if (latest.list !== mine) return;
  fill("list", page.jobs.map((one) => [
    jobLink(one.id), one.type, one.resource, one.cancel && one.state === "running" ? "running, cancelled" : one.state,
    `${one.attempts} of ${one.max_attempts}`, time(one.registered_at), one.reason,
  ]));
  nextAfter = page.next;
  element("no-jobs").hidden = page.jobs.length > 0;
  element("first").hidden = after === 0;
  element("next").hidden = page.next === null;
}

async function showJob(id) {
  const mine = (latest.job = {});
  const job = await ask("GET", `api/jobs/${id}`);
  if (latest.job !== mine) return;
  shownJob = job.id;
  element("job-title").textContent = `Job ${job.id}`;
  describe("fields", [
    ["Type", job.type],
    ["Resource", job.resource],
    ["State", job.cancel && job.state === "running" ? "running, and asked to end" : job.state],
    ["Attempts", `${job.attempts} of ${job.max_attempts}`],
    ["Coalesces", job.coalesce ? "yes: one run does all that wait" : "no"],
    ["Registered", time(job.registered_at)],
    ["Ended", time(job.finished_at) || "not yet"],
    ["Reason", job.reason ?? "none"],
  ]);
  element("payload").textContent = JSON.stringify(job.payload, null, 2);
  fill("attempts", job.runs.map((one) => [
    String(one.token), one.worker, time(one.began_at), time(one.ended_at), one.outcome ?? "runs", because(one),
  ]));
  element("no-attempts").hidden = job.runs.length > 0;
  const allowed = {
    redo: ["failed", "parked", "cancelled"].includes(job.state),
    cancel: ["registered", "failed", "parked"].includes(job.state) || (job.state === "running" && !job.cancel),
    delete: job.state !== "running",
  };
  for (const button of document.querySelectorAll("[data-action]")) button.disabled = !allowed[button.dataset.action];
  element("job").hidden = false;
  element("job").focus();
}

function closeJob() {
  latest.job = {};
  shownJob = null;
  element("job").hidden = true;
}

async function showAll() {
  await showFigures();
  await showList(0);
  element("login").hidden = true;
  element("content").hidden = false;
  element("forget").hidden = sessionStorage.getItem(KEY) === null;
}

// --- what is done ---

function confirmed(action, id) {
  const [question, yes] = QUESTIONS[action];
  const dialog = element("confirm");
  element("question").textContent = question.replace("ID", id);
  element("yes").textContent = yes;
  dialog.showModal();
  return new Promise((resolve) => { answer = resolve; });
}

// Not the event "close": it comes later, when the next question may be open.
function decide(yes) {
  element("confirm").close();
  answer(yes);
}

async function act(action) {
  const id = shownJob;
  if (id === null || !(await confirmed(action, id))) return;
  let done;
  if (action === "delete") {
    await ask("DELETE", `api/jobs/${id}`);
    closeJob();
    done = `Job ${id} is deleted.`;
  } else {
    const outcome = await ask("POST", `api/jobs/${id}/${action}`);
    await showJob(id);
    if (action === "redo") done = `Job ${id} is registered again.`;
    else done = outcome.cancelled ? `Job ${id} is cancelled.` : `Job ${id} runs. Its worker is asked to end it.`;
  }
  await showFigures();
  await showList(0);
  say(done);
}

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, element("token").value.trim());
  element("token").value = "";
  say("");
  trying(showAll);
});
element("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  say("");
  trying(() => showList(0));
});
element("refresh").addEventListener("click", () => {
  say("");
  trying(async () => {
    await showAll();
    if (shownJob !== null) await showJob(shownJob);
  });
});
element("forget").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  closeJob();
  askForToken();
});
element("next").addEventListener("click", () => trying(() => showList(nextAfter)));
element("first").addEventListener("click", () => trying(() => showList(0)));
element("close").addEventListener("click", closeJob);
element("yes").addEventListener("click", () => decide(true));
element("no").addEventListener("click", () => decide(false));
element("confirm").addEventListener("cancel", () => decide(false));
for (const button of document.querySelectorAll("[data-action]")) {
  button.addEventListener("click", () => trying(() => act(button.dataset.action)));
}
element("state").append(...STATES.map((state) => {
  const option = make("option", state);
  option.value = state;
  return option;
}));
trying(showAll);
