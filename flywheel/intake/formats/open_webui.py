"""Open WebUI exports: chats (every finished answer of every branch is a call) and the feedback list.

- A chat is a tree of messages: the request of an answer is the way from the root to it. The system prompt is the chat's
  own; images of the user's are content parts, as the model got them. What was retrieved from documents is not in the
  export, so such a call is marked (``open_webui_retrieval``).
- The interaction's id is the message's, its conversation the chat. Both exports may be imported in any order: a
  feedback row brings a snapshot of the chat, from which the rated answer is taken.
- A rating of 1 or -1 is a thumb; its reason, tags and rating from 1 to 10 are a comment, since a rating would take the
  thumb's place. Models that lost or won beside it are a preference between models. An answer that the user edited in
  place is a correction of what the model had said; one that was asked for again got a "regenerate".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flywheel.intake.formats import chat
from flywheel.intake.formats.feedback import feedback
from flywheel.intake.formats.open_webui_content import take_apart, written
from flywheel.intake.formats.open_webui_tree import Tree
from flywheel.intake.formats.registry import log_format
from flywheel.intake.records import (
    BadRecord,
    Choice,
    Context,
    Dropped,
    FeedbackRecord,
    InteractionRecord,
    Json,
    Record,
    SkippedRecord,
)


def _matches(record: Json) -> bool:
    return _is_feedback(record) or ("chat" in record and ("title" in record or "user_id" in record))


def _is_feedback(record: Json) -> bool:
    return "user_id" in record and "type" in record and "data" in record and "meta" in record


@log_format(
    "open_webui",
    _matches,
    "`chat` with `title` or `user_id`, or `user_id`, `type`, `data` and `meta` of feedback",
)
def parse(record: Json, context: Context) -> Sequence[Record | Dropped]:
    """Read a chat or a feedback row. One whose model is another configured task is skipped.

    An answer that cannot be read does not cost the chat its others.
    """
    if _is_feedback(record):
        chat.check_task(context, chat.mapping(record.get("data")).get("model_id"))
        return _feedback_row(record)
    tree = Tree.of(record.get("chat"))
    tree.check_size()
    chat.check_task(context, *(node.get("model") for node in tree.answers()))
    user = chat.user(record.get("user_id"))
    again = tree.asked_again()
    turns: list[InteractionRecord] = []
    said: list[FeedbackRecord | Dropped] = []
    for node in tree.answers():
        try:
            if (turn := _call(tree, node, record, user)) is None:
                continue
            turns.append(turn)
            said.extend(_in_chat(node, again, user))
        except BadRecord as error:
            said.append(Dropped(str(error)))
    if not turns and not said:
        raise SkippedRecord("chat without an answer")
    return [*turns, *said]


def _call(tree: Tree, node: Json, record: Json, user: str | None) -> InteractionRecord | None:
    """The call that made a message, or None when it has not finished: a later export has it."""
    error = node.get("error")
    content = chat.first(node.get("originalContent"), node.get("content")) or written(node.get("output"))
    if node.get("done") is False or (not content and not error):
        return None
    if not isinstance(content, str):
        raise BadRecord("an answer is not text")
    parts = take_apart(content)
    said = {"role": "assistant", "content": parts.last} | chat.present({"reasoning_content": parts.reasoning})
    model = chat.text(node.get("model")) or ""
    usage = chat.first(node.get("usage"), node.get("info"))
    marks = {
        "open_webui_retrieval": True if node.get("sources") or tree.has_files(node) else None,
        "open_webui_tags": chat.mapping(record.get("meta")).get("tags"),
    }
    return InteractionRecord(
        call_id=chat.call_id(node["id"]),
        ts=node.get("timestamp"),
        messages=[*tree.history(node), *parts.steps],
        choices=[Choice(0, said, None)] if content else [],
        params=tree.params,
        conversation_id=chat.identifier(chat.first(record.get("id"), tree.own_id)),
        parent_id=tree.answer_before(node),
        user=user,
        model=model,
        release=model,
        status="error" if error else "ok",
        usage=chat.mapping(usage),
        metadata=chat.present(marks),
    )


def _in_chat(node: Json, again: dict[str, Json], user: str | None) -> Iterator[FeedbackRecord]:
    """What a chat itself says about one of its answers."""
    target, ts = ("interaction", node["id"]), node.get("timestamp")
    given = chat.mapping(node.get("annotation")) or chat.present({"rating": node.get("rating")})
    yield from _opinions(given, chat.text(node.get("feedbackId")), node["id"], user, ts, chat.text(node.get("model")))
    content = node.get("content")
    if isinstance(node.get("originalContent"), str) and isinstance(content, str) and content.strip():
        text = take_apart(content).last
        if text != take_apart(node["originalContent"]).last and text.strip():
            said = ("correction", None)
            yield feedback("ow", node["id"], target, said, ts=ts, source="user", text=text, author=user)
    if node["id"] in again:
        when = again[node["id"]].get("timestamp")
        yield feedback("ow", node["id"], target, ("regenerate", None), ts=when, source="implicit", author=user)


def _feedback_row(record: Json) -> list[Record]:
    if record.get("type") != "rating":
        raise SkippedRecord("feedback that is no rating")
    data, meta = chat.mapping(record.get("data")), chat.mapping(record.get("meta"))
    if (message_id := chat.call_id(meta.get("message_id"))) is None:
        raise BadRecord("the feedback names no message")
    ts = chat.first(record.get("updated_at"), record.get("created_at"))
    user, own_id = chat.user(record.get("user_id")), chat.identifier(record.get("id"))
    said = [*_opinions(data, own_id, message_id, user, ts, chat.text(data.get("model_id")))]
    if not said:
        raise BadRecord("the feedback says nothing")
    return [*_from_snapshot(record, message_id), *said]


def _from_snapshot(record: Json, message_id: str) -> list[Record]:
    """The rated answer out of the snapshot, or nothing when it is not there: the feedback then waits for the chat."""
    row = chat.mapping(chat.mapping(record.get("snapshot")).get("chat"))
    try:
        tree = Tree.of(row.get("chat"))
        node = next((node for node in tree.answers() if node["id"] == message_id), None)
        found = _call(tree, node, row, chat.user(row.get("user_id"))) if node is not None else None
    except BadRecord:
        return []
    return [] if found is None else [found]


def _opinions(
    given: Json, own_id: str | None, message_id: str, user: str | None, ts: Any, model: str | None
) -> Iterator[FeedbackRecord]:
    def about(kind: str, value: Any, text: str = "") -> FeedbackRecord:
        target = ("interaction", message_id)
        return feedback("ow", own_id, target, (kind, value), ts=ts, source="user", text=text, author=user)

    rating, comment = given.get("rating"), chat.text(given.get("comment")) or ""
    if rating is not None:
        if chat.number(rating) not in (1, -1):
            raise BadRecord("the rating is neither 1 nor -1")
        liked = chat.number(rating) == 1
        yield about("thumb", liked, comment)
        siblings = given.get("sibling_model_ids")
        if isinstance(siblings, list) and siblings and model:
            pair = {"chosen": [model], "rejected": siblings} if liked else {"chosen": siblings, "rejected": [model]}
            yield about("preference", {"models": pair})
    fine = chat.number(chat.mapping(given.get("details")).get("rating"))
    more = {
        "reason": given.get("reason"),
        "tags": given.get("tags"),
        "rating": None if fine is None else {"value": fine, "scale": [1, 10]},
    }
    if (extra := chat.present(more)) or (comment and rating is None):
        yield about("comment", extra or None, "" if rating is not None else comment)
