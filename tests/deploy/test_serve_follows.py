"""What the command of a served federation makes of a server that is slow, gone, or silent at the end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from flwr.proto.control_pb2 import ListRunsResponse, StartRunResponse, StreamLogsResponse
from flwr.supercore.control import ControlHttpClient

from solera.deploy.common import flower
from solera.deploy.common.credential import write_token
from solera.deploy.common.flower import Address
from solera.deploy.operate import reachability, serve
from solera.deploy.server import serving
from solera.deploy.server.serving import Serving

ASKED = httpx.Request("POST", "http://h")
SLOW = httpx.ReadTimeout("timed out", request=ASKED)
BUSY = httpx.HTTPStatusError("503", request=ASKED, response=httpx.Response(503, request=ASKED))
RESET = httpx.RemoteProtocolError("disconnected", request=ASKED)
GONE = httpx.ConnectError("refused", request=ASKED)
UNKNOWN = httpx.HTTPStatusError("404", request=ASKED, response=httpx.Response(404, request=ASKED))


class Server:
    """Answers to questions about a run, in order: an error, or a status; the last one repeats for ever."""

    def __init__(self, *answers: Any, stop: Exception | None = None) -> None:
        self.answers, self.stop = list(answers), stop
        self.started = 0
        self.stopped: list[int] = []

    def StartRun(self, _: Any) -> StartRunResponse:  # noqa: N802 - Flower's name
        self.started += 1
        return StartRunResponse(run_id=self.started)

    def ListRuns(self, request: Any) -> ListRunsResponse:  # noqa: N802 - Flower's name
        found = ListRunsResponse()
        if not request.HasField("run_id"):  # of all runs; only the last one may be under way
            if self.started:
                found.run_dict[self.started].status.status = "running"
            return found
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        found.run_dict[request.run_id].status.status = answer
        found.run_dict[request.run_id].status.sub_status = "failed" if answer == "finished" else ""
        return found

    def StopRun(self, request: Any) -> None:  # noqa: N802 - Flower's name
        if self.stop:
            raise self.stop
        self.stopped.append(request.run_id)

    def StreamLogs(self, _: Any) -> list[StreamLogsResponse]:  # noqa: N802 - Flower's name
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serves until the server's answers are a Ctrl-C; returns what was told."""
    home = flower.home_of(tmp_path)
    flower.write_address(home, Address("127.0.0.1", 1))
    write_token(home, "127.0.0.1:1", new=True)
    monkeypatch.setattr(reachability, "check", lambda address: None)
    monkeypatch.setattr("solera.deploy.operate.serve.time.sleep", lambda seconds: None)

    def until_interrupted(server: Server) -> list[str]:
        monkeypatch.setattr(ControlHttpClient, "from_server_address", lambda **_: server)
        told: list[dict[str, Any]] = []
        with pytest.raises(KeyboardInterrupt):
            serve.serve(tmp_path, told.append)
        return [line["event"] for line in told]

    return until_interrupted


def test_a_run_goes_on_while_the_server_is_too_busy_to_answer(served):
    server = Server("running", SLOW, BUSY, RESET, "running", SLOW, "running", KeyboardInterrupt())
    assert served(server) == ["serving", "silence", "silence"]
    assert server.started == 1
    assert server.stopped == [1]  # by the Ctrl-C


@pytest.mark.parametrize("answer", [GONE, UNKNOWN, "finished"])
def test_a_run_that_is_gone_is_started_again(served, answer):
    server = Server("running", answer, KeyboardInterrupt())
    assert served(server) == ["serving", "away", "serving"]
    assert server.started == 2


@pytest.mark.parametrize("stop", [SLOW, GONE, BUSY])
def test_a_silent_server_does_not_keep_the_command_from_ending(served, stop):
    assert served(Server("running", KeyboardInterrupt(), stop=stop)) == ["serving"]


def test_a_full_disk_is_waited_for_and_does_not_keep_the_command_from_ending(served, tmp_path, monkeypatch):
    Serving(born=0.0).write(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    for module in (serve, serving):
        monkeypatch.setattr(module, "write_atomically", full)
    server = Server("running", "finished", KeyboardInterrupt())
    assert served(server) == ["serving", "away", "serving"]
