"""Chats in a table: a row is a message, with the columns ``chat``, ``role`` and ``content``."""

import csv
from itertools import groupby
from operator import itemgetter

from refork.errors import BadInput
from refork.formats.openai_chat import OpenAIChat
from refork.tree.records import Remark


class ChatCsv:
    """Reads chats; ``policy`` tokenises them, where the user named one."""

    name = "chat-csv"

    def __init__(self, policy=None):
        self.chats = OpenAIChat(policy)

    def sniff(self, head):
        return head.text.startswith("chat,role,content")

    def read(self, path):
        with path.open(newline="") as file:
            table = csv.DictReader(file)
            if table.fieldnames != ["chat", "role", "content"]:
                raise BadInput("the columns are not chat,role,content", where=str(path))
            for chat, rows in groupby(table, itemgetter("chat")):
                messages = [{"role": row["role"], "content": row["content"]} for row in rows]
                try:
                    yield from self.chats.item({"messages": messages}, chat, f"{path}, chat {chat}")
                except BadInput as error:
                    yield Remark("skipped", error.what, error.where)
