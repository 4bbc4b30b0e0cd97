"""`pytest --torchsan`: every test runs under the sanitizer, and one with a finding fails.

    pytest --torchsan            a test with a finding fails with the report
    pytest --torchsan=warn       it passes, the report is a warning
    @pytest.mark.torchsan(ignore=["TS204"])      not these codes (or names) in this test
    [tool.pytest.ini_options]
    torchsan = "fail"            as if --torchsan were given; or "warn"
    torchsan_ignore = ["TS204"]  not these codes anywhere

pytest loads this file in every run, so it imports nothing but pytest until a test is to be watched.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torchsan.model import Finding, Report

MODES = ("fail", "warn")
OPTION = "--torchsan"


class TorchsanWarning(pytest.PytestWarning):
    """A finding in a test, under `--torchsan=warn`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchsan", "sanitizer for PyTorch programs")
    group.addoption(
        OPTION,
        nargs="?",
        const="fail",
        metavar="MODE",
        help="run tests under the sanitizer; a test with a finding fails, or only warns (--torchsan=warn)",
    )
    parser.addini("torchsan", "run tests under the sanitizer: fail or warn", default="")
    parser.addini("torchsan_ignore", "codes that torchsan does not report in tests", "args", default=[])


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """`pytest --torchsan tests` means the folder `tests`, not the mode `tests`."""
    if OPTION in args:
        args[:] = [f"{OPTION}=fail" if text == OPTION else text for text in args]
        early_config.known_args_namespace = parser.parse_known_args(args, namespace=copy.copy(early_config.option))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "torchsan(ignore=[...]): codes that torchsan does not report in this test")
    mode = config.getoption("torchsan") or config.getini("torchsan")
    if not mode:
        return
    if mode not in MODES:
        raise pytest.UsageError(f"{OPTION} is {' or '.join(MODES)}, not {mode!r}")
    if importlib.util.find_spec("torch") is None:
        raise pytest.UsageError(f"{OPTION} needs torch, which is not installed")
    config.pluginmanager.register(_Watcher(mode, config.getini("torchsan_ignore")), "torchsan-watcher")


def _ignored_by(item: pytest.Item) -> set[str]:
    ignored: set[str] = set()
    for marker in item.iter_markers("torchsan"):
        codes = marker.kwargs.get("ignore", ())
        if marker.args or set(marker.kwargs) - {"ignore"} or not isinstance(codes, (str, list, tuple, set)):
            raise pytest.UsageError(f"{item.nodeid}: the marker is used as torchsan(ignore=['TS101'])")
        ignored |= {codes} if isinstance(codes, str) else set(codes)
    return ignored


class _Watcher:
    """Watches the call of each test; fixtures run outside, since their contexts outlive the call."""

    def __init__(self, mode: str, ignore: list[str]) -> None:
        self.mode = mode
        self.ignore = set(ignore)

    def pytest_report_header(self) -> str:
        return f"torchsan: tests are watched, findings {self.mode}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        import torchsan

        ignored = self.ignore | _ignored_by(item)
        raised: set[object] = set()

        def note(finding: Finding) -> None:
            # Met while torch's own error is in flight. Either the error ends the test, and then its message
            # tells the finding, or the test expects it (`pytest.raises`), and then nothing is amiss.
            if sys.exc_info()[1] is not None:
                raised.add(finding.key)

        watch = torchsan.watch(on_finding=note)
        try:
            with watch:
                result = yield
        except BaseException:
            if told := _told(watch.report, ignored, raised):
                item.add_report_section("call", "torchsan", told)
            raise
        if told := _told(watch.report, ignored, raised):
            if self.mode == "fail":
                pytest.fail(told, pytrace=False)
            item.warn(TorchsanWarning(told))
        return result


def _told(report: Report, ignored: set[str], raised: set[object]) -> str:
    """The alarms that are neither ignored nor raised, as text; empty when there are none."""
    alarms = [f for f in report.alarms if not {f.code, f.name} & ignored and f.key not in raised]
    if not alarms:
        return ""
    from torchsan.model import Report
    from torchsan.report import render

    return render(Report(findings=alarms)).rstrip()


@pytest.fixture
def torchsan_verify() -> Callable[..., Report]:
    """`torchsan_verify(model, args, kwargs, methods=["export"])` fails unless the captures are the model.

    With `methods`, each of them must be faithful to eager; without, one faithful way of capturing is enough.
    Gives back the report.
    """
    import torchsan
    from torchsan.report import render

    verify: Any = torchsan.verify

    def check(model: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Report:
        report: Report = verify(model, args, kwargs, **options)
        faithful = [capture.outcome == "faithful" for capture in report.captures]
        if not (all(faithful) and faithful if options.get("methods") else any(faithful)):
            outcomes = ", ".join(f"{capture.method} {capture.outcome}" for capture in report.captures)
            pytest.fail(f"{render(report)}\ncaptures: {outcomes or 'none'}", pytrace=False)
        return report

    return check
