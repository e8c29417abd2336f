"""The page in a browser: live updates, keyboard, screen reader, and names with markup."""

from tests.unit.cli.ui.browser import Browser
from tests.unit.cli.ui.cluster import EVIL, Cluster, name, policy

TEXT = "document.querySelector('main').innerText"
ROWS = "[...document.querySelectorAll('tbody th')].map((cell) => cell.innerText)"


async def test_policies_requests_and_targets_are_shown_with_markup_as_text(
    browser: Browser,
) -> None:
    await browser.until(f"{ROWS}.length == 2")
    assert await browser.evaluate(ROWS) == ["reload", "rollout"]
    assert "a controller leads" in await browser.evaluate(TEXT)
    # Text from the cluster is never interpreted as markup.
    assert EVIL in await browser.evaluate(TEXT)
    assert await browser.evaluate("document.querySelectorAll('main img').length") == 0
    await browser.evaluate("document.querySelector('tbody th a').click()")
    await browser.until(f"{ROWS}.length == 3")
    assert await browser.evaluate("document.title") == "Requests - kube-retrofit"
    assert await browser.evaluate("document.querySelector('select').value") == "reload"
    await browser.evaluate(f"location.hash = '#/request/{name(2)}'")
    await browser.until(f"{TEXT}.includes('shop/web')")
    assert EVIL in await browser.evaluate(TEXT)
    await browser.evaluate(f"location.hash = '#/request/{name(9)}'")
    await browser.until("document.getElementById('problem').innerText.includes('Not known now')")


async def test_the_page_follows_the_cluster_until_it_is_paused(
    browser: Browser, cluster: Cluster
) -> None:
    await browser.until(f"{ROWS}.length == 2")
    cluster.policies.append(policy("later"))
    cluster.tell()
    await browser.until(f"{ROWS}.includes('later')")
    await browser.evaluate("document.getElementById('pause').click()")
    paused = "document.getElementById('pause').getAttribute('aria-pressed')"
    assert await browser.evaluate(paused) == "true"
    seen = len(cluster.api.seen)
    await browser.evaluate("window.frames_seen = 0")
    # Three polling intervals, measured by the browser's clock.
    await browser.evaluate("setTimeout(() => { window.frames_seen = 1 }, 6000)")
    await browser.until("window.frames_seen")
    assert len(cluster.api.seen) <= seen + 4


async def test_filters_narrow_the_query_and_the_shown_rows(
    browser: Browser, cluster: Cluster
) -> None:
    await browser.evaluate("location.hash = '#/requests'")
    await browser.until(f"{ROWS}.length == 3")
    field = "document.querySelector('input[type=search]')"
    await browser.evaluate(f"{field}.value = 'weath'")
    await browser.evaluate(f"{field}.dispatchEvent(new Event('input', {{bubbles: true}}))")
    await browser.until(f"{ROWS}.length == 1")
    states = "document.querySelector('select[name=state]')"
    await browser.evaluate(f"{states}.value = 'Failed'")
    await browser.evaluate(f"{states}.dispatchEvent(new Event('change', {{bubbles: true}}))")
    await browser.until("location.hash == '#/requests?state=Failed'")
    await browser.until(f"{field}.value == 'weath'")
    queries = [item.query.get("fieldSelector") for item in cluster.api.seen]
    while "status.state=Failed" not in queries:
        await browser.until("document.readyState == 'complete'")
        queries = [item.query.get("fieldSelector") for item in cluster.api.seen]


async def test_the_page_is_usable_by_keyboard_and_keeps_the_focus(browser: Browser) -> None:
    await browser.until(f"{ROWS}.length == 2")
    focus = "document.activeElement.innerText.trim()"
    await browser.press("Tab")
    assert await browser.evaluate(focus) == "Skip to the content"
    await browser.press("Tab")
    await browser.press("Tab")
    assert await browser.evaluate(focus) == "Requests"
    await browser.press("Enter")
    await browser.until(f"{ROWS}.length == 3")
    assert await browser.evaluate("document.activeElement.id") == "main"
    assert await browser.evaluate("document.getElementById('said').innerText") == (
        "Requests - kube-retrofit"
    )
    await browser.press("Tab")
    assert await browser.evaluate("document.activeElement.name") == "policy"
    # The page is redrawn in the meantime, and the field keeps the focus.
    await browser.evaluate("setTimeout(() => { window.later = 1 }, 5000)")
    await browser.until("window.later")
    assert await browser.evaluate("document.activeElement.name") == "policy"


async def test_elements_have_names_for_screen_readers(browser: Browser) -> None:
    await browser.until(f"{ROWS}.length == 2")
    assert await browser.names("navigation") == ["Pages"]
    assert await browser.names("progressbar") == ["Rollout of rollout: 30 of 120, 9s left"]
    (table,) = await browser.names("table")
    assert table.startswith("The busiest first.")
    heads = await browser.names("columnheader")
    assert heads[:3] == ["Policy", "Ready", "Waiting"]
    await browser.evaluate("location.hash = '#/requests'")
    await browser.until(f"{ROWS}.length == 3")
    assert await browser.names("combobox") == ["Policy", "State"]
    assert await browser.names("searchbox") == ["Trigger contains"]


async def test_the_browser_reports_no_errors(browser: Browser) -> None:
    await browser.until(f"{ROWS}.length == 2")
    await browser.evaluate("location.hash = '#/requests'")
    await browser.until(f"{ROWS}.length == 3")
    await browser.evaluate("location.hash = '#/request/" + name(2) + "'")
    await browser.until(f"{TEXT}.includes('shop/web')")
    assert browser.complaints == []
