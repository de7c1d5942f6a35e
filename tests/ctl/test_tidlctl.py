# SPDX-License-Identifier: Apache-2.0
"""tidlctl against a real broker and real clients."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from pathlib import Path

from ctl_support import DEADLINE_S, HERE, Broker, program

PAGE = os.sysconf("SC_PAGESIZE")


def normalise(text: str, *pids: int) -> str:
    """Replace what differs from run to run, keeping the columns' order but not their widths."""
    text = re.sub(r"\S*/ctl_holder\b", "ctl_holder", text)
    for index, pid in enumerate(pids):
        text = re.sub(rf"\b{pid}\b", f"PID{index}", text)
    text = re.sub(rf"\buid {os.getuid()}(?: \(\S+\))?", "uid UID (USER)", text)
    text = re.sub(rf"(PID\d\s+){os.getuid()}\b", r"\1UID", text)
    text = re.sub(r"^(group|generation): \d+$", r"\1: N", text, flags=re.M)
    text = re.sub(r"^age: \S+$", "age: AGE", text, flags=re.M)
    text = re.sub(r"^cgroup: .*\n", "", text, flags=re.M)
    text = re.sub(r"\b\d+(?:s|m\d\ds)\s*(?=$|PID)", "AGE ", text, flags=re.M)
    text = re.sub(rf"^  +\d+ +{2 * PAGE} +(\d+) +\d+", r"  ID 2PAGES \1 INODE", text, flags=re.M)
    text = re.sub(rf"^exposed bytes: {PAGE}$", "exposed bytes: 1PAGE", text, flags=re.M)
    # Linux 6.3 and newer seal against execution, too.
    text = re.sub(r" exec$", "", text, flags=re.M)
    text = re.sub(r"(PID\d +)\d+$", r"\1N", text, flags=re.M)
    text = re.sub(r"(128 +0 +)\d+$", r"\1ID", text, flags=re.M)
    return "".join(re.sub(r"(?<=\S) +", " ", line).rstrip() + "\n" for line in text.splitlines())


def golden(case: str) -> str:
    return (HERE / "golden" / f"{case}.txt").read_text(encoding="utf-8")


def test_list(broker: Broker) -> None:
    holder = broker.hold("publish", "demo/x")
    result = broker.ctl("list")
    assert result.status == 0
    assert normalise(result.out, holder.pid) == golden("live_list")


def test_inspect(broker: Broker) -> None:
    producer = broker.hold("publish", "demo/x")
    consumer = broker.hold("attach", "demo/x")
    result = broker.ctl("inspect", "demo/x")
    assert result.status == 0
    assert normalise(result.out, producer.pid, consumer.pid) == golden("live_inspect")


def test_json(broker: Broker) -> None:
    producer = broker.hold("publish", "demo/x")
    consumer = broker.hold("attach", "demo/x")

    [entry] = json.loads(broker.ctl("--json", "list", "demo/*").out)["publications"]
    assert entry["name"] == "demo/x"
    assert entry["owner"]["uid"] == os.getuid()
    assert (entry["dtype"], entry["shape"]) == ("float32", [8, 4])
    assert (entry["tensor_bytes"], entry["mode"]) == (128, "0600")
    assert (entry["pid"], entry["holders"]) == (producer.pid, 2)
    assert entry["age_ms"] >= 0

    document = json.loads(broker.ctl("--json", "inspect", "demo/x").out)
    assert document["generation"] == entry["generation"]
    assert document["retention"] == "until-idle"
    assert document["copied"] is False
    assert document["metadata"] == {"unit": "m"}
    assert document["publisher"]["pid"] == producer.pid
    [tensor] = document["tensors"]
    [segment] = document["segments"]
    assert (tensor["strides"], tensor["byte_offset"], tensor["segment"]) == ([4, 1], 0, 0)
    assert {"shrink", "grow"} <= set(segment["seals"])
    by_pid = {holder["pid"]: holder for holder in document["holders"]}
    assert by_pid[producer.pid]["kind"] == "allocation"
    assert by_pid[consumer.pid]["kind"] == "lease"
    assert by_pid[consumer.pid]["attach"] == "write"
    maps = Path(f"/proc/{consumer.pid}/maps").read_text(encoding="utf-8")
    assert any(f" {segment['inode']} " in line for line in maps.splitlines())


def test_holders_end_with_their_process(broker: Broker) -> None:
    producer = broker.hold("publish", "demo/x")
    consumer = broker.hold("attach", "demo/x")
    consumer.close()
    # The broker may see the new connection before the end of the old one: ask until it knows.
    deadline = time.monotonic() + DEADLINE_S
    pids = {consumer.pid}
    while consumer.pid in pids and time.monotonic() < deadline:
        document = json.loads(broker.ctl("--json", "inspect", "demo/x").out)
        pids = {holder["pid"] for holder in document["holders"]}
    assert pids == {producer.pid}


def test_no_match_is_an_empty_table(broker: Broker) -> None:
    result = broker.ctl("list", "nothing/*")
    assert result.status == 0
    assert result.out.count("\n") == 1
    assert json.loads(broker.ctl("list", "nothing/*", "--json").out)["publications"] == []


def test_bad_names(broker: Broker) -> None:
    missing = broker.ctl("inspect", "demo/missing")
    assert missing.status == 1
    assert missing.err.endswith("(NOT_FOUND)\n")
    invalid = broker.ctl("inspect", "a//b")
    assert invalid.status == 1
    assert invalid.err.endswith("(NAME_INVALID)\n")
    hostile = broker.ctl("inspect", b"a\x1b[31m\xff")
    assert hostile.status == 1
    assert "\x1b" not in hostile.err


def test_rm(broker: Broker) -> None:
    broker.hold("publish", "demo/x")
    broker.hold("publish", "demo/y")
    result = broker.ctl("--json", "rm", "demo/x", "demo/missing", "demo/y")
    document = json.loads(result.out)
    assert result.status == 1
    assert document["removed"] == ["demo/x", "demo/y"]
    assert [failure["code"] for failure in document["failed"]] == ["NOT_FOUND"]
    assert json.loads(broker.ctl("--json", "list").out)["publications"] == []


def test_hostile_command_line(broker: Broker) -> None:
    holder = broker.hold(
        "publish", "demo/x", b"\x1b]0;owned\x07\x1b[2J\nline\xff", "\u202e".encode()
    )
    for arguments in (("inspect", "demo/x"), ("--json", "inspect", "demo/x")):
        result = broker.ctl(*arguments)
        assert result.status == 0, result.err
        assert not set(result.out) & {"\x1b", "\x07", "\u202e", "\r"}
        assert str(holder.pid) in result.out
    assert "\nline" not in broker.ctl("inspect", "demo/x").out


def test_no_daemon_is_told_and_none_is_started(tmp_path: Path, broker: Broker) -> None:
    nowhere = tmp_path / "nobody.sock"
    for arguments in (("list",), ("inspect", "x"), ("rm", "x"), ("shutdown",)):
        result = broker.ctl("--socket", str(nowhere), *arguments)
        assert result.status == 3
        assert result.out == ""
        assert result.err.endswith("(NO_BROKER)\n")
    document = json.loads(broker.ctl("--json", "--socket", str(nowhere), "list").out)
    assert document["error"]["code"] == "NO_BROKER"
    assert not nowhere.exists()


def test_shutdown(broker: Broker) -> None:
    holder = broker.hold("publish", "demo/x")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as watcher:
        watcher.settimeout(DEADLINE_S)
        watcher.connect(str(broker.socket))
        assert broker.ctl("shutdown").status == 0
        assert watcher.recv(1) == b"", "the broker closes its connections"
    assert broker.ctl("list").status == 3
    assert holder.process.poll() is None, "whoever holds memory lives on"


def test_a_closed_pipe_ends_it_quietly(broker: Broker) -> None:
    """As for any filter: killed by SIGPIPE, or an error on the write, never a traceback or hang."""
    broker.hold("publish", "demo/x")
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [program("client/ctl/tidlctl"), "list"],
        env=broker.environment,
        stdout=write_end,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=False,
    )
    os.close(write_end)
    assert done.returncode in (1, -signal.SIGPIPE)


def start(broker: Broker, *arguments: str) -> subprocess.Popen[bytes]:
    """tidlctl, going on while the test does."""
    return subprocess.Popen(
        [program("client/ctl/tidlctl"), *arguments],
        env=broker.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_wait(broker: Broker) -> None:
    waiting = start(broker, "wait", "demo/x", "--json")
    missing = broker.ctl("wait", "demo/x", "--timeout", "0")
    assert missing.status == 1
    assert missing.err.endswith("(TIMEOUT)\n")
    broker.hold("publish", "demo/x")
    out, err = waiting.communicate(timeout=DEADLINE_S)
    assert (waiting.returncode, err) == (0, b"")
    generation = json.loads(out)["generation"]
    assert broker.ctl("wait", "demo/x").out == f"{generation}\n"
    late = broker.ctl("wait", "demo/x", "--newer-than", str(generation), "--timeout", "0.01")
    assert late.status == 1
    consumer = broker.hold("attach", "demo/x")
    assert broker.ctl("wait", "demo/x", "--released", "--timeout", "0").status == 1
    waiting = start(broker, "wait", "demo/x", "--released")
    consumer.close()
    assert waiting.communicate(timeout=DEADLINE_S)[0] == f"{generation}\n".encode()
    assert broker.ctl("wait", "a//b").err.endswith("(NAME_INVALID)\n")
    both = broker.ctl("wait", "demo/x", "--released", "--newer-than", "1")
    assert both.err.endswith("(USAGE)\n")


def test_watch(broker: Broker) -> None:
    watching = start(broker, "watch", "demo/*", "--json", "--count", "3")
    # It has no way to say that it began, so names come until the first is told.
    names = iter(range(1000))
    while not select.select([watching.stdout], [], [], 0.05)[0]:
        number = next(names)
        broker.hold("publish", f"demo/{number}").close()
        broker.ctl("rm", f"demo/{number}")
    broker.hold("publish", "demo/last")
    broker.ctl("rm", "demo/last")
    out, err = watching.communicate(timeout=DEADLINE_S)
    assert (watching.returncode, err) == (0, b"")
    events = [json.loads(line) for line in out.splitlines()]
    assert len(events) == 3
    assert {event["schema"] for event in events} == {1}
    assert {event["event"] for event in events} <= {"published", "removed", "leased", "released"}


def test_watch_ends_by_signal_and_with_the_broker(broker: Broker) -> None:
    watching = [start(broker, "watch", "**") for _ in range(2)]
    for process in watching:
        while not select.select([process.stdout], [], [], 0.05)[0]:
            broker.hold("publish", f"x/{os.urandom(4).hex()}")
    watching[0].send_signal(signal.SIGINT)
    watching[0].communicate(timeout=DEADLINE_S)
    assert watching[0].returncode == -signal.SIGINT
    broker.ctl("shutdown")
    _, err = watching[1].communicate(timeout=DEADLINE_S)
    assert watching[1].returncode == 3
    assert b"(BROKER_GONE)" in err
