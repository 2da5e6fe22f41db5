"""The released file format: one line is `ID text`, a question is `ID text<TAB>answer<TAB>supporting lines`."""

from collections.abc import Callable, Iterable

from ponder_ref.checks import quoted
from ponder_ref.runtime.errors import Refused
from tasks.babi.stories import Question, Story

# In the files of these tasks no blank stands between the question mark and the tab.
WITHOUT_BLANK = frozenset({4, *range(15, 21)})


def write(stories: Iterable[Story], task: int) -> str:
    """The text of a file, to the byte as the released ones are written."""
    blank = "" if task in WITHOUT_BLANK else " "
    lines = []
    for story in stories:
        for number, line in enumerate(story.lines, start=1):
            if isinstance(line, str):
                lines.append(f"{number} {line}\n")
            else:
                supports = " ".join(map(str, line.supports))
                lines.append(f"{number} {line.text}{blank}\t{line.answer}\t{supports}\n")
    return "".join(lines)


def read(data: bytes, name: str, check: Callable[[str | Question], object] | None = None) -> list[Story]:
    """The stories in a file's bytes; `name` is what the sentence about a malformed line calls the file.

    `check` may refuse a statement or question for its words, by a ValueError.
    """
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if not lines:
        raise Refused(f"{name} is empty")
    stories: list[Story] = []
    story: list[str | Question] = []
    for position, raw in enumerate(lines, start=1):
        try:
            number, line = parse_line(raw)
            if number == 1 and story:
                stories.append(Story(tuple(story)))
                story = []
            if number != len(story) + 1:
                expected = f"1 or {len(story) + 1}" if story else "1"
                raise ValueError(f"the line's number should be {expected}, got {number}")
            if isinstance(line, Question):
                check_supports(line, story)
            if check is not None:
                check(line)
        except ValueError as error:
            raise Refused(f"{name}, line {position}: {error}") from None
        story.append(line)
    return [*stories, Story(tuple(story))]


def parse_line(raw: bytes) -> tuple[int, str | Question]:
    """Number and content of a line. ValueError says what is wrong with it."""
    try:
        text = raw.decode("ascii").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("not plain ASCII text") from None
    head, blank, rest = text.partition(" ")
    number = whole(head)
    if not blank or number is None:
        raise ValueError(f"a line begins with its number and a blank, got {quoted(text)}")
    if "\t" not in rest:
        return number, parse_sentence(rest, ".", "a statement")
    fields = rest.split("\t")
    if len(fields) != 3:
        raise ValueError(f"a question has two tabs, before the answer and the supporting lines, got {len(fields) - 1}")
    answer = fields[1].strip()
    if not answer or " " in answer:
        raise ValueError(f"an answer is one word or words joined by commas, got {quoted(answer)}")
    supports = [whole(word) for word in fields[2].split()]
    if not supports or None in supports:
        raise ValueError(f"supporting lines are numbers separated by blanks, got {quoted(fields[2])}")
    question = parse_sentence(fields[0], "?", "a question")
    return number, Question(question, answer, tuple(support for support in supports if support is not None))


def parse_sentence(text: str, mark: str, what: str) -> str:
    sentence = text.strip()
    if not sentence.endswith(mark) or not sentence[:-1].strip():
        raise ValueError(f"{what} is some words and {mark!r}, got {quoted(text)}")
    return sentence


def check_supports(question: Question, story: list[str | Question]) -> None:
    """Each support must be a statement above the question."""
    for support in question.supports:
        if not 1 <= support <= len(story) or not isinstance(story[support - 1], str):
            raise ValueError(f"supporting line {support} is not a statement above the question")


def whole(word: str) -> int | None:
    """A decimal number without sign, None for anything else (and for numbers no file has)."""
    return int(word) if word.isdecimal() and len(word) <= 9 else None
