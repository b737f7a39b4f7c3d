"""What a text may be to be taken at all."""

from orchestrator.domain.errors import InvalidParams, TooLarge
from orchestrator.wire import MAX_MESSAGE_BYTES


def check_size(text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"the text has {size} bytes; the limit is {MAX_MESSAGE_BYTES}", limit=MAX_MESSAGE_BYTES
        )


def check_visible(text: str) -> None:
    """A text for a composer must show there: of one that does not, nobody could say that it arrived."""
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise InvalidParams("the text holds nothing that can be seen: there is nothing to type", path="text")
