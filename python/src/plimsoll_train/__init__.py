"""Does this PyTorch training fit my card? `fits(model, batch, optimizer, card="rtx-4090")` trains it on a card that is not
there, in a process of its own, and says."""
from .answer import Answer, DoesNotFit, PlimsollError
from .ask import fits

__all__ = ["Answer", "DoesNotFit", "PlimsollError", "assert_fits", "fits"]


def assert_fits(card, model, batch, optimizer, **settings):
    """For tests: fails with the whole answer where the training does not fit the card."""
    answer = fits(model, batch, optimizer, card=card, **settings)
    assert answer, str(answer)
    return answer
