"""Module templates that read, clean, search and write text."""

# ruff: noqa: E501  one call a line

TEXT = r'''
## slugs | slugs labels tags
# names: make_slug/label_for/short_key unique_slug/free_label/next_key title_words/capitalised/headline
"""Short names for a qitem."""
import re

SMALL = {"of", "the", "and", "in", "a", "to"}


def make_slug(title, longest=24):
    """A name of letters, digits and hyphens, cut at a word where it is too long."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word
        if len(longer) > longest:
            break
        slug = longer
    return slug


def unique_slug(title, taken):
    """A slug that nobody has, with a number where it is needed."""
    slug = make_slug(title)
    number = 2
    candidate = slug
    while candidate in taken:
        candidate = f"{slug}-{number}"
        number += 1
    return candidate


def title_words(title):
    """A title in capitals, small words left small unless they come first."""
    words = []
    for place, word in enumerate(title.lower().split()):
        words.append(word if place > 0 and word in SMALL else word.capitalize())
    return " ".join(words)
---
make_slug(<text 6>, <choice 12|18|24>) ; the short name made of a heading
unique_slug(<text 2>, <taken>) ; a short name nobody else has
title_words(<text 5>) ; the heading in capitals
## wrapping | wrapping columns layout
# names: fold_lines/broken_lines/lines_within justify_line/spread_words/even_line column_block/side_by_side/aligned_rows
"""Laying out text about the qitem."""


def fold_lines(text, width):
    """Words in lines no wider than the width; a longer word has its own line."""
    rows, row = [], ""
    for word in text.split():
        if row and len(row) + 1 + len(word) > width:
            rows.append(row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    if row:
        rows.append(row)
    return rows


def justify_line(words, width):
    """Words spread over exactly this width, wider gaps to the left."""
    if len(words) == 1:
        return words[0].ljust(width)
    spare = width - sum(len(word) for word in words)
    gap, extra = divmod(spare, len(words) - 1)
    line = words[0]
    for place, word in enumerate(words[1:]):
        line += " " * (gap + (1 if place < extra else 0)) + word
    return line


def column_block(rows, gap=2):
    """Rows of cells as aligned lines; numbers to the right."""
    widths = [max(len(str(row[place])) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = []
        for cell, width in zip(row, widths):
            cells.append(str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width))
        lines.append((" " * gap).join(cells).rstrip())
    return lines
---
fold_lines(<text 9>, <int 12|22>) ; the note broken into lines
justify_line(<words 3>, <int 24|32>) ; a line stretched to the full width
column_block(<cells 3>, <int 1|3>) ; the listing with aligned columns
## tokens | tokens lexer scanner
# names: split_tokens/lexemes/pieces_of parse_number/read_number/number_in strip_comment/without_remark/code_part
"""Reading the notation in which qitems are written."""


def split_tokens(text):
    """Names, numbers and signs of a line; spaces part them, quoted parts stay whole."""
    found, current, quoted = [], "", False
    for letter in text:
        if letter == '"':
            quoted = not quoted
            if not quoted:
                found.append(current)
                current = ""
        elif quoted or letter.isalnum() or letter in "._":
            current += letter
        else:
            if current:
                found.append(current)
                current = ""
            if not letter.isspace():
                found.append(letter)
    if current:
        found.append(current)
    return found


def parse_number(text):
    """A number with optional sign, thousands commas and a percent sign."""
    cleaned = text.strip().replace(",", "")
    share = cleaned.endswith("%")
    if share:
        cleaned = cleaned[:-1]
    sign = -1 if cleaned.startswith("-") else 1
    cleaned = cleaned.lstrip("+-")
    value = float(cleaned) if "." in cleaned else int(cleaned)
    return sign * value / 100 if share else sign * value


def strip_comment(line, mark="#"):
    """The line without its remark; a mark inside quotes is none."""
    quoted = False
    for place, letter in enumerate(line):
        if letter == '"':
            quoted = not quoted
        elif letter == mark and not quoted:
            return line[:place].rstrip()
    return line.rstrip()
---
split_tokens(<notation>) ; the pieces of a line of notation
parse_number(<number>) ; the number that stands for a text
strip_comment(<remark>) ; the line once the remark is gone
## formula | formula expressions evaluator
# names: evaluate_formula/compute_text/worked_out to_postfix/operators_last/reordered
"""Formulas in which the qamount is worked out."""
from @tokens import parse_number, split_tokens

RANK = {"+": 1, "-": 1, "*": 2, "/": 2}


def to_postfix(text):
    """The pieces of a formula with each operator after what it works on."""
    output, waiting = [], []
    for piece in split_tokens(text):
        if piece in RANK:
            while waiting and waiting[-1] in RANK and RANK[waiting[-1]] >= RANK[piece]:
                output.append(waiting.pop())
            waiting.append(piece)
        elif piece == "(":
            waiting.append(piece)
        elif piece == ")":
            while waiting[-1] != "(":
                output.append(waiting.pop())
            waiting.pop()
        else:
            output.append(piece)
    return output + waiting[::-1]


def evaluate_formula(text, names=None):
    """The value of a formula whose names stand for given numbers."""
    known = names or {}
    stack = []
    for piece in to_postfix(text):
        if piece in RANK:
            right, left = stack.pop(), stack.pop()
            if piece == "+":
                stack.append(left + right)
            elif piece == "-":
                stack.append(left - right)
            elif piece == "*":
                stack.append(left * right)
            else:
                stack.append(left / right)
        else:
            stack.append(known[piece] if piece in known else parse_number(piece))
    return stack.pop()
---
to_postfix(<formula>) ; the formula with operators put last
evaluate_formula(<formula>) ; the result of a formula
evaluate_formula(<formula>, dict(x=3)) ; what a calculation comes to
## records | records rows entries
# names: read_records/rows_from_text/parse_entries write_records/text_from_rows/dumped_entries pick_columns/only_fields/selected
"""Files of qitem rows."""
from @tokens import strip_comment


def read_records(text, separator=";"):
    """Rows of a text as dictionaries; the first row names the fields, blank ones are skipped."""
    rows = [strip_comment(line) for line in text.split("\n")]
    rows = [row for row in rows if row.strip()]
    if not rows:
        return []
    fields = [field.strip() for field in rows[0].split(separator)]
    found = []
    for row in rows[1:]:
        cells = [cell.strip() for cell in row.split(separator)]
        cells += [""] * (len(fields) - len(cells))
        found.append(dict(zip(fields, cells)))
    return found


def write_records(rows, separator=";"):
    """Inverse of reading; fields in the order in which they first occur."""
    fields = []
    for row in rows:
        fields += [field for field in row if field not in fields]
    lines = [separator.join(fields)]
    for row in rows:
        lines.append(separator.join(str(row.get(field, "")) for field in fields))
    return "\n".join(lines)


def pick_columns(rows, fields):
    """Rows with these fields only; one that has none of them is left out."""
    picked = [{field: row[field] for field in fields if field in row} for row in rows]
    return [row for row in picked if row]
---
read_records(<recordtext>) ; the rows that are read from a file
write_records(<rows 3>) ; the file that is written
pick_columns(<rows 3>, ["name", <choice "qamount"|"place">]) ; a few fields of every row
## settings | settings options preferences
# names: read_settings/parse_options/load_preferences merged_settings/combined/overlaid setting_value/lookup_option/preference
"""Settings of the qplace."""
from @tokens import parse_number, strip_comment


def read_settings(text):
    """Sections of ``key = value`` lines; numbers and yes or no are converted."""
    sections, current = {}, "general"
    for line in text.split("\n"):
        line = strip_comment(line).strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            current = line[1:-1].strip()
        else:
            key, _, value = line.partition("=")
            sections.setdefault(current, {})[key.strip()] = setting_value(value.strip())
    return sections


def setting_value(text):
    """A value as a truth value, a number or text."""
    if text.lower() in ("yes", "on", "true"):
        return True
    if text.lower() in ("no", "off", "false"):
        return False
    try:
        return parse_number(text)
    except ValueError:
        return text


def merged_settings(first, second):
    """Settings of both; where both say something the second wins."""
    merged = {section: dict(values) for section, values in first.items()}
    for section, values in second.items():
        merged.setdefault(section, {}).update(values)
    return merged
---
read_settings(<settingstext>) ; the preferences as they are understood
setting_value(<choice "yes"|"Off"|"12"|"1,250"|"7%"|"north"|"-3.5">) ; what a single preference means
merged_settings(<sections>, <sections>) ; two sets of preferences laid over each other
## search | search finder lookup
# names: score_match/relevance/fitness ranked_matches/best_hits/ordered_results highlight/marked_text/emphasised
"""Finding qitems by words."""
import re


def score_match(query, text):
    """How well a text fits a query: words that occur, more for those at the start."""
    wanted = query.lower().split()
    words = re.findall(r"\w+", text.lower())
    score = 0
    for word in wanted:
        if word in words:
            score += 3 if words.index(word) == 0 else 2
        elif any(other.startswith(word) for other in words):
            score += 1
    return score


def ranked_matches(query, texts, most=3):
    """The best texts, the earlier ones first among equals; without those that do not fit."""
    scored = [(score_match(query, text), -place, text) for place, text in enumerate(texts)]
    fitting = sorted((one for one in scored if one[0] > 0), reverse=True)
    return [text for _, _, text in fitting[:most]]


def highlight(query, text):
    """The text with the words of the query between stars."""
    wanted = set(query.lower().split())
    return " ".join(f"*{word}*" if word.lower() in wanted else word for word in text.split(" "))
---
score_match(<query>, <phrase>) ; how well an entry fits what was typed
ranked_matches(<query>, <phrases 5>, <int 2|4>) ; the hits in order
highlight(<query>, <phrase>) ; the entry with the typed words marked
## spelling | spelling typos similar
# names: edit_steps/changes_between/letter_distance closest_words/suggestions/likely_meant shared_prefix/common_start/same_beginning
"""Names of qitems that were typed wrongly."""


def edit_steps(one, two):
    """How many letters must be put in, left out or changed to turn one into two."""
    previous = list(range(len(two) + 1))
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, other in enumerate(two, 1):
            change = previous[column - 1] + (letter != other)
            current.append(min(previous[column] + 1, current[column - 1] + 1, change))
        previous = current
    return previous[-1]


def closest_words(word, known, limit=2):
    """Known words within the limit, nearest first."""
    found = sorted((edit_steps(word, other), other) for other in known)
    return [other for steps, other in found if steps <= limit]


def shared_prefix(words):
    """The letters that all words begin with."""
    if not words:
        return ""
    shortest = min(words, key=len)
    for place, letter in enumerate(shortest):
        if any(word[place] != letter for word in words):
            return shortest[:place]
    return shortest
---
edit_steps(<word>, <word>) ; how far two names are apart
closest_words(<typo>, <vocabulary>, <int 1|3>) ; the names that were probably meant
shared_prefix(<prefixed>) ; what several names have in common at the start
## templates | templates letters messages
# names: fill_template/filled_in/render_letter missing_fields/unfilled/open_places plural_form/counted/with_number
"""Letters about a qitem."""
import re


def fill_template(text, values, default="?"):
    """The text with each <field> replaced by its value."""
    return re.sub(r"<(\w+)>", lambda found: str(values.get(found.group(1), default)), text)


def missing_fields(text, values):
    """Fields of a text that have no value, each once, in order."""
    found = []
    for field in re.findall(r"<(\w+)>", text):
        if field not in values and field not in found:
            found.append(field)
    return found


def plural_form(count, word, several=None):
    """A count with its word in the right number."""
    if count == 1:
        return f"one {word}"
    plural = several or (word[:-1] + "ies" if word.endswith("y") else word + "s")
    return f"no {plural}" if count == 0 else f"{count} {plural}"
---
fill_template(<letter>, <letterdata>) ; the letter that goes out
missing_fields(<letter>, <letterdata>) ; the blanks nobody filled in
plural_form(<int 0|3>, <choice "entry"|"qitem"|"berth"|"copy">) ; the wording for a number of things
## codes | codes checksums identifiers
# names: check_digit/control_figure/last_digit valid_code/is_genuine/code_holds group_code/chunked/in_blocks
"""Numbers that identify a qitem."""


def check_digit(digits):
    """The digit that makes the weighted sum of all divisible by ten; weights 3 and 1 in turn."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        total += int(digit) * (3 if place % 2 == 0 else 1)
    return (10 - total % 10) % 10


def valid_code(code):
    """Whether a code, spaces and hyphens aside, ends in its own check digit."""
    digits = code.replace(" ", "").replace("-", "")
    if len(digits) < 2 or not digits.isdigit():
        return False
    return check_digit(digits[:-1]) == int(digits[-1])


def group_code(code, size=3, mark="-"):
    """The code in blocks counted from the right."""
    blocks = []
    while code:
        blocks.insert(0, code[-size:])
        code = code[:-size]
    return mark.join(blocks)
---
check_digit(<digits 7>) ; the last figure of an identification number
valid_code(<code>) ; whether an identification number is genuine
group_code(<digits 8>, <int 2|4>) ; the number written in blocks
## runs | runs compression packed
# names: pack_runs/squeezed/run_lengths unpack_runs/expanded/unrolled changed_rows/difference_of/altered
"""Recording what a qplace showed without repeating it."""


def pack_runs(text):
    """A text with repeated letters as a count and the letter."""
    result = ""
    place = 0
    while place < len(text):
        end = place
        while end < len(text) and text[end] == text[place]:
            end += 1
        count = end - place
        result += (str(count) if count > 1 else "") + text[place]
        place = end
    return result


def unpack_runs(text):
    """Inverse of packing."""
    result, count = "", ""
    for letter in text:
        if letter.isdigit():
            count += letter
        else:
            result += letter * (int(count) if count else 1)
            count = ""
    return result


def changed_rows(before, after):
    """Rows that were taken away and rows that were added, in order."""
    removed = [row for row in before if row not in after]
    added = [row for row in after if row not in before]
    return removed, added
---
pack_runs(<runs>) ; the shortened record
unpack_runs(<packed>) ; the record written out again
changed_rows(<words 4>, <words 4>) ; what was taken away and what came in
'''
