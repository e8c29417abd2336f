// The page: one view for each address behind the #, drawn from JSON again and again. lit-html
// changes only what differs, so focus, selection and what a screen reader reads stay.
import { html, nothing, render } from "./vendor/lit-html.js";

const PAUSE = 2000;
const STATES = { "": "all", Pending: "waiting", Completed: "completed", Failed: "failed", Skip: "skipped" };

const main = document.getElementById("main");
const said = document.getElementById("said");
const problem = document.getElementById("problem");
const pause = document.getElementById("pause");

// What a person chose; everything else is asked for again.
let pages = 1;
let search = "";
let drawn = 0;

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error);
  return data;
}

function place() {
  const [path, query] = location.hash.slice(1).split("?");
  const [, view, name] = path.split("/");
  return { view: view || "policies", name: name && decodeURIComponent(name), query: new URLSearchParams(query) };
}

const count = (number) => number.toLocaleString("en");
const moment = (text) => (text ? html`<time datetime=${text}>${new Date(text).toLocaleString()}</time>` : nothing);
const requestsOf = (policy) => `#/requests?${new URLSearchParams({ policy })}`;
const link = (name) => html`<a href="#/request/${encodeURIComponent(name)}">${name}</a>`;

function progress(what, found) {
  if (!found) return nothing;
  const total = found.total ?? undefined;
  const text = `${count(found.done)} of ${total === undefined ? "?" : count(total)}${found.timeLeft ? `, ${found.timeLeft} left` : ""}`;
  const bar = total ? html`<progress aria-label=${`${what}: ${text}`} max=${total} value=${Math.min(found.done, total)}></progress>` : nothing;
  return html`${bar}<small>${text}</small>`;
}

function heading(text) {
  document.title = `${text} - kube-retrofit`;
  return html`<h1>${text}</h1>`;
}

function table(caption, head, rows) {
  return html`<div class="overflow-auto"><table class="striped">
    <caption>${caption}</caption>
    <thead><tr>${head.map(([name, kind]) => html`<th scope="col" class=${kind ?? ""}>${name}</th>`)}</tr></thead>
    <tbody>${rows}</tbody></table></div>`;
}

function troubles(item) {
  const found = [];
  if (item.notReady) found.push(`not ready: ${item.notReady}`);
  if (item.heldBack) found.push(`held back: ${item.heldBack}`);
  if (item.missingPermissions.length) found.push(`waits for a right: ${item.missingPermissions.join(", ")}`);
  else if (item.lastError && (item.failed || item.waiting)) found.push(`last error: ${item.lastError}`);
  if (item.lostTimes) found.push("triggers were lost: see status.mutateExisting.lost");
  return found.length ? found : [item.message];
}

async function policies() {
  const board = await ask("api/board");
  const holds = (holder, yes, no) => (holder === null ? nothing : html`<li>${holder.name && holder.fresh ? yes : no}</li>`);
  const row = (item) => html`<tr>
    <th scope="row"><a href=${requestsOf(item.policy)}>${item.policy}</a></th>
    <td>${item.notReady ? "no" : "yes"}</td>
    <td class="number">${count(item.waiting)}</td>
    <td class="number">${item.donePerSecond === null ? "" : item.donePerSecond.toFixed(1)}</td>
    <td class="number">${count(item.doneTriggers)}</td>
    <td class="number">${count(item.patched)}</td>
    <td class="number">${count(item.failed)}</td>
    <td>${troubles(item).map((text) => html`<small>${text}</small>`)}${progress(`Rollout of ${item.policy}`, item.rollout)}</td></tr>`;
  const head = [["Policy"], ["Ready"], ["Waiting", "number"], ["Done/s", "number"], ["Done", "number"], ["Patched", "number"], ["Failed", "number"], ["What it does"]];
  return html`${heading("Policies")}
    <ul>
      <li>${count(board.waiting)} ${board.waiting === 1 ? "request waits" : "requests wait"}</li>
      ${holds(board.leader, "a controller leads", "no controller leads: nothing is worked on")}
      ${holds(board.admission, "an admission server serves", "no admission server serves: no trigger is recorded")}
      ${board.complete ? nothing : html`<li>some policies are missing here: you may not list all kinds</li>`}
    </ul>
    ${board.policies.length ? table("The busiest first. Figures are of the present generation of each policy.", head, board.policies.map(row)) : html`<p>There is no policy.</p>`}`;
}

async function loaded(query) {
  const found = [];
  let token = "";
  for (let page = 0; page < pages; page += 1) {
    const wanted = new URLSearchParams(query);
    if (token) wanted.set("continue", token);
    const answer = await ask(`api/requests?${wanted}`);
    found.push(...answer.requests);
    token = answer.continue;
    if (!token) break;
  }
  return [found, token];
}

function filter(event) {
  event?.preventDefault();
  const form = document.querySelector("form.filters");
  search = form.elements.trigger.value;
  pages = 1;
  const chosen = new URLSearchParams();
  for (const name of ["policy", "state"]) if (form.elements[name].value) chosen.set(name, form.elements[name].value);
  const wanted = `#/requests${chosen.size ? `?${chosen}` : ""}`;
  if (location.hash === wanted) draw();
  else history.replaceState(null, "", wanted), draw();
}

async function requests({ query }) {
  const [[found, token], board] = await Promise.all([loaded(query), ask("api/board").catch(() => ({ policies: [] }))]);
  const policy = query.get("policy") ?? "";
  const names = new Set([policy, ...board.policies.map((item) => item.policy)].filter(Boolean));
  const shown = found.filter((item) => item.trigger.toLowerCase().includes(search.toLowerCase()));
  const row = (item) => html`<tr>
    <th scope="row">${link(item.name)}</th>
    <td>${item.policy} / ${item.rule}</td>
    <td>${item.sweep ? "all triggers" : item.trigger}${progress(item.name, item.progress)}</td>
    <td>${item.state}${item.reason ? html`<small>${item.reason}</small>` : nothing}</td>
    <td class="number">${count(item.patched)}/${count(item.matched)}</td>
    <td>${moment(item.created)}</td></tr>`;
  const head = [["Request"], ["Policy / rule"], ["Trigger"], ["State"], ["Patched", "number"], ["Created"]];
  return html`${heading("Requests")}
    <form class="filters" @submit=${filter}>
      <label>Policy <select name="policy" @change=${filter}>
        <option value="" ?selected=${!policy}>all</option>
        ${[...names].sort().map((name) => html`<option value=${name} ?selected=${name === policy}>${name}</option>`)}
      </select></label>
      <label>State <select name="state" @change=${filter}>
        ${Object.entries(STATES).map(([value, text]) => html`<option value=${value} ?selected=${value === (query.get("state") ?? "")}>${text}</option>`)}
      </select></label>
      <label>Trigger contains <input type="search" name="trigger" .value=${search} @input=${filter}></label>
    </form>
    ${shown.length ? table(`${count(shown.length)} shown${token ? ", there are more" : ""}, by name.`, head, shown.map(row)) : html`<p>${token ? "None of those that are loaded fits." : "There is no such request."}</p>`}
    ${token ? html`<button type="button" @click=${() => { pages += 1; draw(); }}>Load more</button>` : nothing}`;
}

async function request({ name }) {
  const item = await ask(`api/requests/${encodeURIComponent(name)}`);
  const fact = (title, value) => (value === "" || value === nothing || value === null ? nothing : html`<dt>${title}</dt><dd>${value}</dd>`);
  const row = (target) => html`<tr>
    <th scope="row">${target.target}</th>
    <td>${target.outcome}</td>
    <td>${target.message}</td>
    <td>${target.after && target.after !== target.before ? `${target.before} → ${target.after}` : target.before}</td>
    <td class="number">${count(target.attempts)}</td></tr>`;
  const head = [["Target"], ["Outcome"], ["Message"], ["resourceVersion"], ["Attempts", "number"]];
  const { patched, unchanged, skipped, failed } = item.counts;
  return html`${heading(item.name)}
    <dl>
      ${fact("State", item.state)}${fact("Reason", item.reason)}${fact("Message", item.message)}
      ${fact("Missing right", item.missingPermission)}
      ${fact("Policy", html`<a href=${requestsOf(item.policy)}>${item.policy}</a> / ${item.rule}`)}
      ${fact("Trigger", item.sweep ? "all triggers" : item.trigger)}${fact("Operation", item.operation)}${fact("Made by", item.source)}
      ${fact("Created", moment(item.created))}${fact("Finished", moment(item.finished))}${fact("Next attempt", moment(item.nextAttempt))}
      ${fact("Attempts", count(item.attempts))}${fact("Done again as", item.retriedAs ? link(item.retriedAs) : "")}
      ${fact("Progress", progress(item.name, item.progress))}
      ${fact("Targets", `${count(patched)} patched, ${count(unchanged)} unchanged, ${count(skipped)} skipped, ${count(failed)} failed`)}
    </dl>
    ${item.targets.length ? table("Targets: all that failed, and some of the others. What a change was is not kept in a request.", head, item.targets.map(row)) : html`<p>No target yet.</p>`}`;
}

const VIEWS = { policies, requests, request };

async function draw(moved = false) {
  const turn = (drawn += 1);
  const here = place();
  try {
    const view = await (VIEWS[here.view] ?? policies)(here);
    if (turn !== drawn) return;
    render(view, main);
    problem.textContent = "";
  } catch (error) {
    if (turn !== drawn) return;
    problem.textContent = `Not known now: ${error.message}`;
  }
  for (const name of ["policies", "requests"]) {
    const current = here.view === name || (name === "requests" && here.view === "request");
    document.getElementById(`to-${name}`).toggleAttribute("aria-current", false);
    if (current) document.getElementById(`to-${name}`).setAttribute("aria-current", "page");
  }
  if (moved) {
    said.textContent = document.title;
    main.focus();
  }
}

pause.addEventListener("click", () => {
  const paused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(paused));
  if (!paused) draw();
});
addEventListener("hashchange", () => {
  pages = 1;
  search = "";
  draw(true);
});
setInterval(() => {
  if (!document.hidden && pause.getAttribute("aria-pressed") !== "true") draw();
}, PAUSE);
draw();
