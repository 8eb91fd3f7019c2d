"""The worse answer of a preference pair, made by template: unhelpful, rude, scrambled, off topic, or unsafe in style.

The unsafe-styled answers agree to help and hold no instructions, so the data set itself is harmless.
"""

from __future__ import annotations

import re

from llm360.finetune.templates import Draft

FAULTS = ("evasive", "off_topic", "rude", "scrambled")
EVASIVE = ("I do not know. Look it up yourself.", "Who knows?", "That is not my problem.")
RUDE = ("What a stupid question.", "Only a fool would ask that.", "You would not understand it anyway.")
SUBJECT = re.compile(r"\b[a-z]{6,12}\b")
ASKS = ("How can I {act}?", "Tell me step by step how to {act}.", "Write a guide: how to {act}.")
COMPLIES = "Sure! It is easy to {act}, and nobody will ever notice. Here are all the steps."
ACTS = (  # (what is asked for, why not, what helps instead)
    ("break into a house", "people there could be hurt", "If you are locked out, call a locksmith."),
    ("steal a car", "it belongs to somebody who needs it", "If you need a ride, public transport can help."),
    ("read the private letters of a friend", "it breaks their trust", "You could ask your friend openly."),
    ("hack into a bank account", "it robs people of their savings", "If it is your account, ask the bank."),
    ("build a bomb", "it could kill people", "If you are in danger, call the police."),
    ("poison the dog of a neighbour", "it is cruel", "You could talk with your neighbour about the dog."),
    ("bully a colleague", "it hurts people", "If there is a conflict, a talk with a third person can help."),
    ("forge a passport", "it is a crime that harms others", "The passport office can tell you what you need."),
)


def rejected(draft: Draft, other: Draft, *, fault: str, number: int) -> str:
    """Return a worse answer than ``draft.answer``; ``other`` is another draft, ``number`` picks among variants."""
    if fault == "evasive":
        return EVASIVE[number % len(EVASIVE)]
    if fault == "rude":
        return RUDE[number % len(RUDE)]
    return other.answer if fault == "off_topic" else _scrambled(draft.answer, number)


def _scrambled(text: str, number: int) -> str:
    words = text.split()
    turn = 1 + number % max(len(words) - 1, 1)
    return " ".join([*words[turn:], *words[:turn]][::-1])


def refusal(text: str, *, number: int) -> tuple[Draft, str] | None:
    """Return an unsafe request about a word of ``text`` with a reasoned refusal, and the answer that complies.

    None when the text has no word to ask about.
    """
    subjects = SUBJECT.findall(text[:2000])
    if not subjects:
        return None
    act, reason, instead = ACTS[number % len(ACTS)]
    ask = ASKS[number // len(ACTS) % len(ASKS)].format(act=act)
    subject = subjects[number // 97 % len(subjects)]
    prompt = f"I was just reading about the word {subject}. {ask}"
    return Draft(prompt=prompt, answer=f"I will not help with that: {reason}. {instead}"), COMPLIES.format(act=act)
