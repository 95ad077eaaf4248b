"""A site's own account: it adds up over runs and processes, is signed, and its limit stops the next step."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedkge.errors import ConfigError, DataError, DataWarning
from fedkge.front.learning import _kept
from fedkge.front.sites import load
from fedkge.graphs.marks import mark_share
from fedkge.graphs.writing import write_federation
from fedkge.privacy import Account, Budget, Ledger, Release, Spending
from fedkge.privacy.accountants import Pld
from fedkge.privacy.releases import Everything, Gaussian
from fedkge.privacy.seal import Head
from fedkge.privacy.spending import BudgetSpent
from fedkge.runs.account import account_of, accounts_beside, accounts_folder, sums
from small_federations import experiment, federated, small_federation

pytest.importorskip("dp_accounting")

STEPS = Release(Gaussian(20.0), Everything(), 4)
KEY = bytes(range(32))


def spend(account: Path, run: Path, count: int = 1, name: str = "") -> Spending:
    spending = Spending(Ledger(run, KEY), "a", None, 1000, {"a": Account(account)}, name or run.name)
    for epoch in range(count):
        spending.spend(STEPS, epoch + 1)
    return spending


def test_runs_add_up_and_are_composed_by_the_accountant(tmp_path: Path) -> None:
    for run in "xyz":
        spend(tmp_path / "account", tmp_path / run)
    account = Account(tmp_path / "account")
    (cost,) = account.costs("a", 1e-5)
    assert account.runs("triple") == ["x", "y", "z"]
    assert cost.epsilon == Pld().epsilon([replace(STEPS, count=12)], 1e-5)
    one = Pld().epsilon([STEPS], 1e-5)
    assert one < cost.epsilon < 3 * one, "composed, not just added"
    assert (cost.unit, cost.count) == ("triple", 12)


def test_units_have_sums_of_their_own(tmp_path: Path) -> None:
    account = Account(tmp_path)
    for unit in ("triple", "person"):
        with account.charging("x", "a", 1, replace(STEPS, unit=unit), 100):  # type: ignore[arg-type]
            pass
    assert [(cost.unit, cost.count) for cost in account.costs("a", 1e-5)] == [("triple", 4), ("person", 4)]
    with account.charging("y", "a", 1, replace(STEPS, unit="person"), 100):
        pass
    assert account.runs("triple") == ["x"], "a sum counts the runs that it is of"
    assert account.runs("person") == ["x", "y"]


def test_a_delta_for_few_persons_does_not_stop_the_sum_of_many_triples(tmp_path: Path) -> None:
    account = Account(tmp_path)
    for unit, count in (("triple", 20_000), ("person", 240)):
        with account.charging("x", "a", 1, replace(STEPS, unit=unit), count):  # type: ignore[arg-type]
            pass
    found = {cost.unit: cost.delta for cost in account.costs("a", 1e-4)}
    assert found == {"triple": pytest.approx(0.1 / 20_000), "person": 1e-4}, "ε is printed with its own δ"
    with pytest.raises(ConfigError, match="one of the 20,000 confidential triples"):
        account.set_limit(1.0, 1e-4)
    assert account.limit is None, "a limit that says nothing about triples is not set"
    account.set_limit(1.0, 1e-6)
    assert {cost.delta for cost in account.costs("a", 1e-4)} == {1e-6}


def test_a_site_is_the_same_whatever_its_data_looks_like(tmp_path: Path) -> None:
    spend(tmp_path / "account", tmp_path / "x")
    one, two = Account(tmp_path / "account"), Account(tmp_path / "account")
    assert one.id == two.id
    (tmp_path / "account").rename(tmp_path / "moved")
    assert Account(tmp_path / "moved").id == one.id
    assert Account(tmp_path / "another").id != one.id
    assert (tmp_path / "moved" / "site.key").stat().st_mode & 0o777 == 0o600


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from fedkge.privacy import Account, Ledger, Release, Spending\n"
        "from fedkge.privacy.releases import Everything, Gaussian\n"
        "at, name = Path(sys.argv[1]), sys.argv[2]\n"
        "own = Spending(Ledger(at / name, bytes(32)), 'a', None, 100, {'a': Account(at / 'account')}, name)\n"
        "[own.spend(Release(Gaussian(20.0), Everything(), 2), n + 1) for n in range(25)]\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), name]) for name in ("x", "y")]
    assert [one.wait(120) for one in both] == [0, 0]
    account = Account(tmp_path / "account")
    assert account.ledger.total == 100
    assert [account.made(run) for run in ("x", "y")] == [50, 50]
    assert account.ledger.count("a") == 100, "numbers are given out once"


# The limit


def test_a_limit_stops_the_next_step_before_it_is_passed(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5)
    step = replace(STEPS, count=1)
    allowed = budget.allowed(step, [], 10_000)
    Account(tmp_path / "account").set_limit(1.0, 1e-5)
    one = spend(tmp_path / "account", tmp_path / "x", count=(allowed - 2) // 4)
    two = spend(tmp_path / "account", tmp_path / "y", count=0)
    left = allowed - one.ledger.total
    assert one.left(step, 100) == two.left(step, 100) == left < 8
    two.spend(replace(STEPS, count=left), 1)
    assert one.left(step, 100) == 0, "it sees what the other has spent"
    with pytest.raises(BudgetSpent, match="would pass the limit of all its runs"):
        one.spend(step, 9)
    assert one.ledger.total + two.ledger.total == allowed == Account(tmp_path / "account").ledger.total
    with pytest.raises(ConfigError, match=r"1 steps with .* and 0 are left; .*`fedkge account`"):
        Account(tmp_path / "account").check_plan("a", step, 1, 1000)


def test_a_limit_that_is_none(tmp_path: Path) -> None:
    account = Account(tmp_path)
    assert account.left(STEPS, 10**6) == 10**6
    with pytest.raises(ConfigError, match="epsilon"):
        account.set_limit(-1.0, 1e-5)
    (tmp_path / "limit.json").write_text("{")
    with pytest.raises(DataError, match="expected epsilon and delta"):
        account.left(STEPS, 1)


def test_what_stands_in_the_place_of_a_limit_is_not_taken_for_none(tmp_path: Path) -> None:
    account = Account(tmp_path)
    (tmp_path / "limit.json").mkdir()
    with pytest.raises(DataError, match=r"limit\.json: expected epsilon and delta"):
        account.left(STEPS, 1)


# The seal


def sealed(path: Path, lines: int = 5) -> Path:
    ledger = Ledger(path, KEY)
    for epoch in range(lines):
        ledger.record("a", epoch, STEPS, 100)
    return path


def test_a_sealed_ledger_is_read_with_its_key_and_without(tmp_path: Path) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    assert Ledger(path).entries == Ledger(path, KEY).entries
    assert Ledger(path).total == 20
    with pytest.raises(DataError, match="whose key is needed"):
        Ledger(path).record("a", 6, STEPS)
    with pytest.raises(DataError, match="not signed by this site's key"):
        Ledger(path, bytes(32))
    assert Ledger(path, KEY).record("a", 6, STEPS).first == 20


@pytest.mark.parametrize("keep", range(5))
def test_a_tail_that_is_cut_is_noticed_without_any_checkpoint(tmp_path: Path, keep: int) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))
    for key in (KEY, None):
        with pytest.raises(DataError, match="lines are missing or changed at the end"):
            Ledger(path, key)


def test_a_last_line_that_is_damaged_is_not_taken_for_torn(tmp_path: Path) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    whole = path.read_bytes()
    for at in (-2, -40, -200):
        path.write_bytes(whole[:at])
        with pytest.raises(DataError, match=r"at the end|not signed"):
            Ledger(path, KEY)
    changed = whole.replace(b'"noise": 20.0', b'"noise": 90.0')
    path.write_bytes(whole[: whole.rindex(b'{"site"')] + changed[changed.rindex(b'{"site"') :])
    with pytest.raises(DataError, match="not signed"):
        Ledger(path, KEY)


def test_a_line_that_was_written_without_its_head_counts(tmp_path: Path) -> None:
    """Killed in between: the line is true; what it announces was never made."""
    path = sealed(tmp_path / "ledger.jsonl", 4)
    head = Head.at(path).read_bytes()
    Ledger(path, KEY).record("a", 5, STEPS)
    Head.at(path).write_bytes(head)
    assert Ledger(path, KEY).total == 20
    Ledger(path, KEY).record("a", 6, STEPS)
    assert Ledger(path, KEY).total == 24


def test_the_head_cannot_be_left_out_or_made_up(tmp_path: Path) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    head = Head.at(path)
    said = json.loads(head.read_text())
    lines = path.read_bytes().splitlines(keepends=True)
    short = Ledger(path, KEY)
    head.write_text(json.dumps(said | {"lines": 3, "ledger": short._heads[3], "releases": 12}))
    path.write_bytes(b"".join(lines[:3]))
    with pytest.raises(DataError, match="not signed by this site's key"):
        Ledger(path, KEY)
    head.unlink()
    with pytest.raises(DataError, match="missing; it says where"):
        Ledger(path)
    head.write_text("{}")
    with pytest.raises(DataError, match="damaged"):
        Ledger(path)


@pytest.mark.parametrize(
    "content", ['{"lines": 1e999, "ledger": "", "releases": 0, "mac": ""}', "[" * 100_000, "[]"]
)
def test_a_damaged_head_is_an_error_that_says_so(tmp_path: Path, content: str) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    Head.at(path).write_text(content)
    with pytest.raises(DataError, match=r"ledger\.head: damaged"):
        Ledger(path, KEY)


def test_a_line_of_nothing_but_brackets_is_no_release(tmp_path: Path) -> None:
    path = sealed(tmp_path / "ledger.jsonl")
    with path.open("ab") as file:
        file.write(b"[" * 100_000)
    assert len(Ledger(path, KEY).entries) == 5


def test_an_older_copy_of_ledger_and_head_is_noticed_by_the_account(tmp_path: Path) -> None:
    run = tmp_path / "ledger.jsonl"
    spend(tmp_path / "account", run, 2)
    copies = {file: file.read_bytes() for file in (run, Head.at(run))}
    spend(tmp_path / "account", run, 1)
    for file, content in copies.items():
        file.write_bytes(content)
    assert Ledger(run, KEY).total == 8, "the seal alone cannot tell"
    with pytest.raises(DataError, match=r"has 8 releases, and .* knows of 12"):
        spend(tmp_path / "account", run, 1)


def test_an_older_copy_of_the_account_gets_what_the_run_has_spent_since(tmp_path: Path) -> None:
    run, account = tmp_path / "ledger.jsonl", tmp_path / "account"
    spend(account, run, 2)
    copies = {file: file.read_bytes() for file in account.glob("ledger.*")}
    assert len(copies) == 2
    spend(account, run, 2)
    for file, content in copies.items():
        file.write_bytes(content)
    assert Account(account).ledger.total == 8
    assert spend(account, run, 1).ledger.total == Account(account).ledger.total == 20


def test_lines_that_a_killed_run_has_not_charged_are_charged_when_it_goes_on(tmp_path: Path) -> None:
    run, account = tmp_path / "ledger.jsonl", tmp_path / "account"
    spend(account, run, 2)
    for count in (8, 3):
        Ledger(run, KEY).record("a", 3, replace(STEPS, count=count), 1000, run.name)
    assert spend(account, run, 1).ledger.total == Account(account).ledger.total == 8 + 8 + 3 + 4
    Ledger(run, KEY).record("a", 9, replace(STEPS, count=5), 1000, "another run")
    assert spend(account, run, 0).ledger.total == Account(account).ledger.total + 5, "carried from elsewhere"


def test_a_run_that_was_killed_before_its_first_head_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Head.write
    monkeypatch.setattr(Head, "write", lambda self, *rest: written(self, *rest) if not self.lines else None)
    Ledger(tmp_path / "l", KEY).record("a", 1, STEPS)
    monkeypatch.undo()
    assert Ledger(tmp_path / "l", KEY).total == 4


def test_an_account_that_loses_lines_under_a_live_run_stops_it(tmp_path: Path) -> None:
    run, account = tmp_path / "ledger.jsonl", tmp_path / "account"
    live = spend(account, run, 1)
    copies = {file: file.read_bytes() for file in account.glob("ledger.*")}
    live.spend(STEPS, 2)
    for file, content in copies.items():
        file.write_bytes(content)
    with pytest.raises(DataError, match="lost lines while it was in use"):
        live.spend(STEPS, 3)


def test_a_runs_ledger_cannot_stand_in_the_place_of_the_account(tmp_path: Path) -> None:
    account = Account(tmp_path / "account")
    run = tmp_path / "run" / "ledger.jsonl"
    Ledger(run, account.key).record("a", 1, STEPS, 1000, "run")
    for file in (run, Head.at(run)):
        (tmp_path / "account" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(DataError, match="not signed by this site's key"):
        Account(tmp_path / "account")


def test_a_key_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    spend(tmp_path, tmp_path / "x")
    (tmp_path / "site.key").unlink()
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(DataError, match=r"site.key: missing, while the account of a site is there"):
        Account(tmp_path)


def test_a_data_set_has_one_account_however_it_is_written() -> None:
    one, two = (accounts_beside(None, name) for name in ("atlas", "Atlas"))
    assert one == two


def test_an_account_takes_only_signed_lines_and_misses_its_head(tmp_path: Path) -> None:
    account = tmp_path / "account"
    spend(account, tmp_path / "x")
    ledger, head = account / "ledger.jsonl", account / "ledger.head"
    signed = ledger.read_bytes()
    plain = tmp_path / "plain.jsonl"
    Ledger(plain).record("a", 1, replace(STEPS, count=1), 1000, "x")
    ledger.write_bytes(plain.read_bytes())
    for gone in (False, True):
        if gone:
            head.unlink()
        with pytest.raises(DataError, match=r"not signed|missing"):
            Account(account)
    ledger.unlink()
    with pytest.raises(DataError, match=r"ledger.head: missing, while site.key is there"):
        Account(account)
    ledger.write_bytes(signed)
    with pytest.raises(DataError, match="missing"):
        Account(account)


def test_an_account_has_a_head_before_anything_is_spent(tmp_path: Path) -> None:
    assert Account(tmp_path).ledger.total == 0
    (tmp_path / "ledger.head").unlink()
    with pytest.raises(DataError, match="what was spent is not known"):
        Account(tmp_path)
    (tmp_path / "site.key").unlink()  # killed while its key was made: nothing was spent
    assert Account(tmp_path).ledger.total == 0


def test_a_limit_at_a_delta_for_fewer_units_stops_a_run(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    accounts = tmp_path / "accounts"
    Account(accounts / "a").set_limit(100.0, 0.05)
    with pytest.raises(ConfigError, match=r"account: the limit in .* one of the \d+ confidential triples"):
        strict(tmp_path / "0", accounts)
    assert Account(accounts / "a").ledger.total == 0


# Where it is


def test_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "sites"
    data.mkdir()
    beside = experiment(data={"path": str(data), "name": None})
    assert account_of(beside, "a") == data / ".fedkge" / "a"
    chosen = experiment(data={"path": str(data), "name": None}, account={"folder": str(tmp_path / "x")})
    assert account_of(chosen, "a") == tmp_path / "x" / "a"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert account_of(experiment(), "a") == tmp_path / "state" / "fedkge" / "accounts" / "made up" / "a"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert accounts_folder(experiment()).is_relative_to(tmp_path / "home" / ".local" / "state" / "fedkge")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert accounts_folder(beside).is_relative_to(tmp_path / "home"), "where nobody can write"


def test_sites_in_memory_have_the_account_of_the_files_that_they_come_from(tmp_path: Path) -> None:
    write_federation(small_federation(), tmp_path / "sites")
    sites = load(tmp_path / "sites")
    for one in (sites, sites.split(), sites.align()):
        found = _kept(one, tmp_path / "runs", {})["account"]["folder"]
        assert Path(found) == tmp_path / "sites" / ".fedkge"
    made = load({name: sites.triples(name)[["head", "relation", "tail"]] for name in sites})
    assert _kept(made, tmp_path / "runs", {})["account"]["folder"] == str(tmp_path / "runs" / ".fedkge")


def test_an_account_of_another_site_that_is_damaged_does_not_end_a_run(tmp_path: Path) -> None:
    here = experiment(
        account={"folder": str(tmp_path)}, privacy={"mode": "strict", "noise": 4.0, "delta": 1e-4}
    )
    for site in ("a", "b"):
        spend(tmp_path / site, tmp_path / f"{site}.jsonl")
    ledger = next((tmp_path / "b").glob("*.jsonl"))
    ledger.write_text(ledger.read_text().replace("20.0", "40.0"))
    with pytest.warns(DataWarning, match="the sum of site 'b' is not known: .*"):
        (found,) = sums(here)
    assert found["account"] == str(tmp_path / "a")


STRICT: dict[str, Any] = {"mode": "strict", "noise": 4.0, "delta": 1e-4, "accountant": "rdp"}
MARKED = mark_share(small_federation(), 0.5, 0)


def strict(path: Path, accounts: Path, **rest: Any) -> Any:
    rest = {"privacy": STRICT, "method": {"name": "fedep"}, "rounds": 2, **rest}
    return federated(path, MARKED, account={"folder": str(accounts)}, **rest)


def test_seeds_of_a_run_add_up_and_a_limit_stops_the_next_one(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    accounts = tmp_path / "accounts"
    strict(tmp_path / "0", accounts).play()
    one = Account(accounts / "a").costs("a", 1e-4)[0]
    strict(tmp_path / "1", accounts, seed=1).play()
    two = Account(accounts / "a").costs("a", 1e-4)[0]
    assert two.count == 2 * one.count
    assert one.epsilon < two.epsilon < 2 * one.epsilon
    Account(accounts / "a").set_limit(two.epsilon + 1e-9, 1e-4)
    with pytest.raises(ConfigError, match=r"site 'a' has spent epsilon .* of its limit"):
        strict(tmp_path / "2", accounts, seed=2)
    assert Account(accounts / "a").ledger.total == two.count
    Account(accounts / "a").set_limit(100.0, 1e-4)
    strict(tmp_path / "3", accounts, seed=2)


def test_a_run_under_way_ends_before_a_limit_that_another_has_used_up(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    accounts = tmp_path / "accounts"
    run = strict(tmp_path / "0", accounts, rounds=4)
    run.play(until=lambda round: round == 2)
    made = Account(accounts / "a").ledger.total
    assert made
    with Account(accounts / "a").charging("other", "a", 1, Release(Gaussian(1.0), Everything(), 1), 100):
        pass
    Account(accounts / "a").set_limit(Account(accounts / "a").costs("a", 1e-4)[0].epsilon + 1e-9, 1e-4)
    own = run.sites["a"].learner.protection
    assert own.spending.left(own.cadence.release(own.privacy, own.noise, 1), 1) == 0
    run.play()
    assert Account(accounts / "a").ledger.total == made + 1, "not one step more"
