"""Single flight and cached answers: one run for equal requests."""

from jackalope.core.cache import single_flight
from jackalope.core.commands import ActOnAnswers
from jackalope.core.context import Deadline, Room

ROOM = Room(
    handlers={ActOnAnswers: single_flight.act_on_answers},
    deadlines=(Deadline(lambda ctx: ctx.book.answers.expiry, single_flight.expire_answers),),
    tasks_ended=single_flight.keep_answers,
)
