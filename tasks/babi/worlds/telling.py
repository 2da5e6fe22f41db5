"""What the worlds share: names, phrases, and the story as it is told."""

from tasks.babi.stories import Question, Story

HOUSE = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
TOWN = ("bedroom", "cinema", "kitchen", "office", "park", "school")

MOVE = ("went to", "went back to", "journeyed to", "travelled to", "moved to")
GET = ("took", "got", "grabbed", "picked up")
DROP = ("dropped", "left", "discarded", "put down")
GIVE = ("gave", "passed", "handed")

WINDOW = 5  # a question is about one of the last five statements


class Telling:
    """The lines of a story so far."""

    def __init__(self) -> None:
        self.lines: list[str | Question] = []

    def state(self, text: str) -> int:
        """Adds a statement; its line number."""
        self.lines.append(text)
        return len(self.lines)

    def ask(self, text: str, answer: str, *supports: int) -> None:
        self.lines.append(Question(text, answer, supports))

    def story(self) -> Story:
        return Story(tuple(self.lines))
