import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from amplifier_hooks import HookRegistry
from amplifier_hooks.errors import HookUnavailable, InvalidRegistration, PrivilegeRequired
from amplifier_hooks.registry.entry_points import list_installed

if TYPE_CHECKING:
    from amplifier_hooks.registry.hook_table import RegistryChange

CODE = """
import sys
print("imported", __name__)

def quiet(event, data):
    return None

def register(scope):
    scope.gate("tool:pre", quiet, name="one")
    scope.on("tool:post", quiet, name="two")

def greedy(scope):
    scope.on("tool:pre", quiet, name="left behind")
    scope.on("llm:post", quiet)

def shouts(scope):
    scope.on("tool:pre", quiet, name="left behind")
    scope.on("LLM:POST", quiet)

def guards(scope):
    scope.gate("acme:go", quiet, name="guard")

async def later(scope):
    pass

def leaves(scope):
    sys.exit(3)

class Audit:
    name, event_type, priority, enabled = "audit", "tool.execute.post", 5, True

    async def execute(self, context, call_next):
        return await call_next()

audit = Audit()
nothing = 7
"""


class Site:
    """A folder of installed packages, in front of all others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, package: str, module: str, entries: dict[str, str], code: str = CODE) -> None:
        """Install a package: a module, and the entry points of its distribution."""
        (self.folder / f"{module}.py").write_text(code, encoding="utf-8")
        info = self.folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"{name} = {module}:{target}" for name, target in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[amplifier_hooks.hooks]", *lines]), encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Packages installed for one test; their modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("their_hooks", "other_hooks", "our_hooks"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return Site(tmp_path)


@pytest.mark.rule("REG-11")
def test_nothing_runs_by_being_installed(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Installed hooks can be listed, and are neither imported nor registered until the host names them."""
    site.install("their-hooks", "their_hooks", {"theirs": "register", "audit": "Audit"})
    registry = HookRegistry()
    assert {"theirs", "audit"} <= set(list_installed())
    assert registry.discover(enabled=[]) == ()
    assert (registry.count(), capsys.readouterr().out) == (0, "")


@pytest.mark.rule("REG-11")
def test_a_package_that_comes_later(site: Site) -> None:
    """A package that is installed or removed while the program runs is listed, or no longer."""
    os.utime(site.folder, (0, 0))  # so that a change in the same tick of the clock is one
    assert "theirs" not in list_installed()
    site.install("their-hooks", "their_hooks", {"theirs": "register"})
    assert "theirs" in list_installed()
    shutil.rmtree(site.folder / "their_hooks-1.0.dist-info")
    os.utime(site.folder, (0, 0))
    assert "theirs" not in list_installed()


@pytest.mark.rule("REG-11")
@pytest.mark.parametrize(
    ("target", "hooks"), [("register", ("one", "two")), ("Audit", ("audit",)), ("audit", ("audit",))]
)
def test_what_an_entry_point_may_be(site: Site, target: str, hooks: tuple[str, ...]) -> None:
    """A function that registers, a hook object, or the class of one; each acts as the plugin it was enabled as."""
    site.install("their-hooks", "their_hooks", {"theirs": target, "more": "register"})
    registry = HookRegistry()
    (found,) = registry.discover(enabled=["theirs"])
    assert (found.name, found.package, found.hooks, found.error) == ("theirs", "their-hooks", hooks, None)
    assert {(hook.owner, hook.tier) for hook in registry.hooks()} == {("theirs", "plugin")}
    assert registry.count() == len(hooks)


@pytest.mark.rule("REG-11")
@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing", "AttributeError"),
        ("greedy", "Plugin theirs lacks privileged_hooks permission"),
        ("shouts", "MisspeltEvent: unknown event 'LLM:POST': write it 'llm:post'"),
        ("guards", "UnknownEvent: unknown event 'acme:go', so the hook 'guard' would never run"),
        ("later", "make it a plain function"),
        ("leaves", "SystemExit: 3"),
        ("nothing", "7 is neither a function"),
    ],
)
def test_a_broken_one_is_reported_and_skipped(site: Site, target: str, reason: str) -> None:
    """A broken package leaves nothing behind and has an error; the others load, and listeners get the failure."""
    site.install("their-hooks", "their_hooks", {"theirs": target, "good": "register"})
    registry = HookRegistry()
    changes: list[RegistryChange] = []
    registry.watch(changes.append)
    broken, good = registry.discover(enabled=["theirs", "good"])
    assert reason in (broken.error or "")
    assert broken.hooks == ()
    assert good.hooks == ("one", "two")
    assert registry.count() == 2
    (told,) = [change for change in changes if change.what == "broken"]
    assert (told.hook, told.owner) == ("theirs", "their-hooks")
    assert reason in told.detail


@pytest.mark.rule("REG-11")
def test_a_required_one_must_work(site: Site) -> None:
    """Where hooks are required, the first that cannot be used is an error that names it."""
    site.install("their-hooks", "their_hooks", {"theirs": "missing"})
    with pytest.raises(HookUnavailable, match="hook 'theirs' cannot be used: AttributeError"):
        HookRegistry().discover(enabled=["theirs"], required=True)
    with pytest.raises(HookUnavailable, match=r"hook 'thiers' cannot be used: no installed package .* theirs"):
        HookRegistry().discover(enabled=["thiers"], required=True)


@pytest.mark.rule("REG-11")
def test_two_packages_with_one_name(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """Two packages with one name are both refused, since the name is ambiguous."""
    site.install("their-hooks", "their_hooks", {"theirs": "register"})
    site.install("other-hooks", "other_hooks", {"theirs": "register"})
    (found,) = HookRegistry().discover(enabled=["theirs"])
    assert found.error == "several packages have a hook of that name: other-hooks, their-hooks"
    assert capsys.readouterr().out == ""


@pytest.mark.rule("REG-11", "TRU-1")
def test_permissions_are_granted_by_name(site: Site) -> None:
    """A plugin has the permissions the application gave it, and no others."""
    site.install("their-hooks", "their_hooks", {"theirs": "greedy", "good": "greedy"})
    registry = HookRegistry()
    granted, refused = registry.discover(
        enabled=["theirs", "good", "theirs"], permissions={"theirs": ["privileged_hooks"]}
    )
    assert granted.hooks == ("left behind", "quiet")
    assert PrivilegeRequired.__name__ in (refused.error or "")
    assert {hook.tier for hook in registry.hooks()} == {"trusted"}


@pytest.mark.rule("REG-11", "TRU-1")
def test_what_ships_with_this_package_is_built_in(site: Site) -> None:
    """Hooks of our own distribution are found in the same way, and are built-in."""
    site.install("amplifier-hooks", "our_hooks", {"ours": "greedy"})
    registry = HookRegistry()
    (found,) = registry.discover(enabled=["ours"])
    assert found.error is None
    assert {hook.tier for hook in registry.hooks()} == {"built-in"}


@pytest.mark.rule("REG-11")
def test_one_text_is_not_a_list() -> None:
    """A single text is refused: it would be read letter by letter."""
    with pytest.raises(InvalidRegistration, match="pass a list"):
        HookRegistry().discover(enabled="theirs")


@pytest.mark.rule("PKG-1")
def test_the_registry_does_not_load_discovery() -> None:
    """Importing the registry imports neither discovery nor explanations."""
    lazy = (".entry_points", ".explain")
    code = f"import sys, amplifier_hooks.registry.registry; print([m for m in sys.modules if m.endswith({lazy})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
