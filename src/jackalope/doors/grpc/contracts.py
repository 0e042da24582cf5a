"""Contracts over gRPC: what tasks take and return, as their workers say."""

from __future__ import annotations

from jackalope.broker import queries
from jackalope.broker.queries import About
from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.doors.grpc.calls import Call
from jackalope.doors.grpc.stubs import jackalope_pb2 as pb
from jackalope.doors.grpc.values import from_struct, to_struct, to_time
from jackalope.wire.views import ContractView


class ContractService:
    """What tasks take and return."""

    async def list_contracts(
        self, call: Call, request: pb.ListContractsRequest
    ) -> pb.ListContractsResponse:
        asked = About(queue=request.queue, name=request.name, text=request.text)
        views = await call.view(queries.contracts, asked)
        return pb.ListContractsResponse(contracts=map(_shown, views))

    async def declare_contracts(
        self, call: Call, request: pb.DeclareContractsRequest
    ) -> pb.DeclareContractsResponse:
        contracts = from_struct(request.contracts, "contracts")
        await call.ask(DeclareContracts(queues=tuple(request.queues), contracts=contracts))
        return pb.DeclareContractsResponse()

    async def delete_contract(
        self, call: Call, request: pb.DeleteContractRequest
    ) -> pb.DeleteContractResponse:
        await call.ask(DeleteContract(queue=request.queue, name=request.name))
        return pb.DeleteContractResponse()


def _shown(view: ContractView) -> pb.Contract:
    return pb.Contract(
        queue=view.queue,
        name=view.name,
        signature=view.signature,
        doc=view.doc,
        version=view.version,
        versions=view.versions,
        content=view.content,
        arguments=to_struct(view.arguments),
        returns=to_struct(view.returns),
        workers=view.workers,
        declared_by=view.declared_by,
        declared_at=to_time(view.declared_us),
    )
