"""What the owner of a server asks Flower's SuperLink, over its Unix socket."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from wayfare.core.errors import WayfareError
from wayfare.deploy.app_bundle import app_bundle, app_hash
from wayfare.deploy.keys import Roll

_MEDIA = "application/protobuf"


class Control:
    """A connection to the SuperLink behind this socket."""

    def __init__(self, place: Path) -> None:
        import httpx

        transport = httpx.HTTPTransport(uds=str(place))
        self._client = httpx.Client(transport=transport, base_url="http://superlink", timeout=30.0, trust_env=False)

    def __enter__(self) -> Control:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def is_up(self) -> bool:
        """Whether it answers."""
        import httpx

        try:
            return self._client.get("/health").is_success
        except httpx.TransportError:
            return False

    def register(self, roll: Roll) -> None:
        """Make the SuperLink know the invited nodes, each key under its name, and no other."""
        from flwr.proto import control_pb2 as control
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        wanted = {(name, public_key_to_bytes(key)) for name, key in roll.public_keys().items()}
        listed = self._call("list-nodes", control.ListNodesRequest(), control.ListNodesResponse).nodes_info
        known = {(node.name, node.public_key): node.node_id for node in listed if node.status != "unregistered"}
        for each in known.keys() - wanted:
            request = control.UnregisterNodeRequest(node_id=known[each])
            self._call("unregister-node", request, control.UnregisterNodeResponse)
        for name, key in sorted(wanted - known.keys()):
            request = control.RegisterNodeRequest(public_key=key, name=name)
            self._call("register-node", request, control.RegisterNodeResponse)

    def start_run(self) -> int:
        """Start the one app; returns the run's number."""
        from flwr.proto import control_pb2 as control
        from flwr.proto.fab_pb2 import Fab

        request = control.StartRunRequest(fab=Fab(hash_str=app_hash(), content=app_bundle()))
        response = self._call("start-run", request, control.StartRunResponse)
        if not response.HasField("run_id"):
            raise WayfareError("Flower's SuperLink did not start the run: see superlink.log in the run's folder")
        return int(response.run_id)

    def is_over(self, run: int) -> bool:
        """Whether Flower takes a run for finished."""
        from flwr.proto import control_pb2 as control

        runs = self._call("list-runs", control.ListRunsRequest(run_id=run), control.ListRunsResponse).run_dict
        return any(str(each.status.status).startswith("finished") for each in runs.values())

    def _call(self, name: str, request: Any, response: Any) -> Any:
        import httpx

        headers = {"content-type": _MEDIA, "accept": _MEDIA}
        try:
            reply = self._client.post(f"/v1/control/{name}", content=request.SerializeToString(), headers=headers)
        except httpx.TransportError as error:
            raise WayfareError(f"Flower's SuperLink does not answer: {error}") from error
        if not reply.is_success:
            raise WayfareError(f"Flower's SuperLink refused {name}: {reply.status_code} {reply.text[:500]}")
        return response.FromString(reply.content)
