"""Contracts: workers declare what their tasks take, and submits that cannot fit are refused."""

from jackalope.core.commands.contracts import DeclareContracts, DeleteContract
from jackalope.core.context import Room
from jackalope.core.contracts import declarations

ROOM = Room(
    handlers={
        DeclareContracts: declarations.declare_contracts,
        DeleteContract: declarations.delete_contract,
    },
    worker_left=declarations.retire,
)
