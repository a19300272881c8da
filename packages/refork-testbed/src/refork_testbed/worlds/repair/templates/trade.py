"""Module templates of trade and administration: money, stock, dates, orders, accounts, reports."""

# ruff: noqa: E501  one call a line

TRADE = r'''
## money | money amounts currency
# names: to_cents/as_smallest_unit/whole_cents format_money/price_text/written_amount share_out_cents/divide_sum/split_bill
"""Sums of money."""


def to_cents(value):
    """A sum as whole cents, halves away from zero."""
    scaled = abs(value) * 100
    cents = int(scaled + 0.5)
    return cents if value >= 0 else -cents


def format_money(cents, sign="$"):
    """Cents as text with thousands parted by commas; a debt in brackets."""
    whole, rest = divmod(abs(cents), 100)
    text = f"{sign}{whole:,}.{rest:02d}"
    return f"({text})" if cents < 0 else text


def share_out_cents(cents, shares):
    """A sum in proportion to shares; what cannot be divided goes to the first ones, a cent each."""
    total = sum(shares)
    parts = [cents * share // total for share in shares]
    left = cents - sum(parts)
    for place in range(left):
        parts[place] += 1
    return parts
---
to_cents(<choice 1.234|-2.5|0.005|19.99|-0.126|7.115>) ; a sum rounded to cents
format_money(<int -90000|900000>) ; a sum as it is printed
share_out_cents(<int 50|5000>, <ints 3|1|5>) ; a bill divided among several
## tax | tax duties levies
# names: tax_on/levy_for/duty_due banded_tax/progressive_levy/stepwise_duty net_of_tax/before_levy/untaxed
"""What has to be paid on a qitem."""
from @money import to_cents

RATES = {"standard": 20, "reduced": 5, "none": 0}


def tax_on(cents, kind="standard"):
    """The tax on a net sum in cents."""
    return to_cents(cents * RATES[kind] / 100 / 100)


def banded_tax(cents, bands):
    """Tax by bands (upper limit or None, percent): each rate applies to its part of the sum."""
    due, lower = 0, 0
    for upper, percent in bands:
        top = cents if upper is None else min(cents, upper)
        if top > lower:
            due += (top - lower) * percent // 100
        if upper is None or cents <= upper:
            break
        lower = upper
    return due


def net_of_tax(gross, kind="standard"):
    """The net sum that was taxed to a gross one."""
    return to_cents(gross / (100 + RATES[kind]))
---
tax_on(<int 100|9000>, <choice "standard"|"reduced"|"none">) ; the duty on a sale
banded_tax(<int 500|9000>, [(1000, 0), (4000, 10), (None, 25)]) ; the duty that rises in steps
net_of_tax(<int 100|9000>, <choice "standard"|"reduced">) ; the sum before duty
## discounts | discounts rebates offers
# names: bulk_price/quantity_price/volume_cost apply_vouchers/redeem/reduced_by loyalty_rate/regulars_rate/bonus_share
"""Price reductions for qitems."""

STEPS = [(100, 20), (50, 12), (10, 5)]


def bulk_price(price, count):
    """The price of many qitems: the more, the cheaper each."""
    for least, percent in STEPS:
        if count >= least:
            return price * count * (100 - percent) // 100
    return price * count


def loyalty_rate(visits, years=0):
    """Percent off for regulars: one for every five visits and for each year, fifteen at most."""
    return min(15, visits // 5 + years)


def apply_vouchers(total, vouchers):
    """A total after vouchers (kind, value), percentages first; never below zero."""
    for kind, value in sorted(vouchers, key=lambda one: one[0] != "percent"):
        if kind == "percent":
            total -= total * value // 100
        else:
            total -= value
    return max(0, total)
---
bulk_price(<int 20|300>, <choice 3|10|49|50|75|100|140>) ; what a large quantity costs
loyalty_rate(<int 0|90>, <int 0|4>) ; the reduction that regulars get
apply_vouchers(<int 500|4000>, <vouchers>) ; what is left to pay after vouchers
## orders | orders purchases baskets
# names: line_total/row_price/position_sum order_total/amount_due/grand_total cheapest_first/sorted_lines/by_price
"""Orders of qitems."""
from @discounts import apply_vouchers, bulk_price
from @tax import tax_on


def line_total(line):
    """The price of one line (name, price, count) with its quantity reduction."""
    _, price, count = line
    if count < 0:
        raise ValueError("a count is 0 or more")
    return bulk_price(price, count)


def order_total(lines, vouchers=(), kind="standard"):
    """What the whole order costs: lines, vouchers, then tax."""
    net = apply_vouchers(sum(line_total(line) for line in lines), list(vouchers))
    return net + tax_on(net, kind)


def cheapest_first(lines):
    """Lines by their total, names where they are equal."""
    return sorted(lines, key=lambda line: (line_total(line), line[0]))
---
line_total(<orderline>) ; the price of one position
order_total(<orderlines 3>, <vouchers>) ; what the whole purchase comes to
order_total(<orderlines 2>) ; the bill for a purchase
cheapest_first(<orderlines 4>) ; the positions in order of price
## stock | stock inventory supplies
# names: take_out/withdraw/remove_units reorder_list/to_buy/shortages stock_value/worth_of/inventory_sum
"""What lies in the qgroup."""


def take_out(stock, name, count):
    """The stock without some of one qitem, which must be there.

    Raises KeyError for an unknown name and ValueError where too few are left.
    """
    if name not in stock:
        raise KeyError(name)
    left = stock[name] - count
    if left < 0:
        raise ValueError(f"only {stock[name]} left")
    changed = dict(stock)
    if left == 0:
        del changed[name]
    else:
        changed[name] = left
    return changed


def reorder_list(stock, least, pack=6):
    """What to buy, in whole packs, so that nothing is below its least."""
    wanted = {}
    for name in sorted(least):
        missing = least[name] - stock.get(name, 0)
        if missing > 0:
            wanted[name] = (missing + pack - 1) // pack * pack
    return wanted


def stock_value(stock, prices):
    """The worth of the stock; what has no price counts nothing."""
    return sum(count * prices.get(name, 0) for name, count in stock.items())
---
take_out(<table 4>, <key>, <int 1|8>) ; what is left after a withdrawal
reorder_list(<table 3>, <table 4>, <int 2|6>) ; the shopping list
stock_value(<table 4>, <table 3>) ; the worth of what is stored
## batches | batches lots expiry
# names: oldest_first/draw_from_lots/pick_batches expired_lots/out_of_date/spoiled lot_label/batch_code/lot_name
"""Lots of qitems with a last day."""


def oldest_first(lots, count):
    """Units by lot (name, last day, units), those that go off soonest first; fails if there are too few."""
    taken = []
    for name, _, units in sorted(lots, key=lambda lot: (lot[1], lot[0])):
        if count == 0:
            break
        used = min(units, count)
        if used:
            taken.append((name, used))
        count -= used
    if count > 0:
        raise ValueError("too few units")
    return taken


def expired_lots(lots, day, grace=0):
    """Names of lots whose last day has passed by more than the grace."""
    return [name for name, last, _ in lots if last + grace < day]


def lot_label(year, week, number):
    """A label such as 24W07-012."""
    if not 1 <= week <= 53:
        raise ValueError("no such week")
    return f"{year % 100:02d}W{week:02d}-{number:03d}"
---
oldest_first(<lots 4>, <int 2|14>) ; which lots are used up first
expired_lots(<lots 5>, <int 5|25>, <int 0|3>) ; what has gone off
lot_label(<int 1998|2031>, <int 1|54>, <int 1|400>) ; the label on a lot
## dates | dates calendar_days daycount
# names: day_number/serial_day/days_since_start month_length/days_in_month/last_of_month add_months/months_later/shifted_month
"""Counting days."""


def month_length(year, month):
    """Days of a month."""
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


def day_number(year, month, day):
    """The number of a day within its year."""
    if not 1 <= day <= month_length(year, month):
        raise ValueError("no such day")
    return sum(month_length(year, one) for one in range(1, month)) + day


def add_months(year, month, day, count):
    """The same day some months later, or the last of a shorter month."""
    total = year * 12 + (month - 1) + count
    year, month = divmod(total, 12)
    month += 1
    return year, month, min(day, month_length(year, month))
---
month_length(<choice 1900|2000|2023|2024>, <int 1|12>) ; how long a month is
day_number(<choice 1999|2000|2024>, <int 1|12>, <choice 1|28|29|31>) ; which day of the year a date is
add_months(<choice 2023|2024>, <int 1|12>, <choice 15|30|31>, <int -3|14>) ; the date some months on
## terms | terms deadlines due
# names: due_date/last_day_to_pay/deadline_for late_fee/reminder_charge/penalty instalments/payment_plan/part_payments
"""When and how a qperson pays."""
from @dates import add_months, day_number
from @money import share_out_cents


def due_date(date, months=1):
    """The day on which something is to be paid, as year, month, day."""
    year, month, day = date
    return add_months(year, month, day, months)


def late_fee(due, paid, cents):
    """Two percent for every thirty days begun, counted within a year; nothing where it was in time."""
    days = (paid[0] - due[0]) * 365 + day_number(*paid) - day_number(*due)
    if days <= 0:
        return 0
    return cents * 2 * ((days + 29) // 30) // 100


def instalments(date, cents, count):
    """Equal monthly parts of a sum with their days."""
    parts = share_out_cents(cents, [1] * count)
    return [(due_date(date, place + 1), part) for place, part in enumerate(parts)]
---
due_date((<int 2020|2024>, <int 1|12>, <choice 1|30|31>), <int 1|5>) ; the last day to pay
late_fee((2024, <int 1|6>, <int 1|28>), (2024, <int 4|12>, <int 1|28>), <int 1000|9000>) ; the charge for paying late
instalments((2023, <int 1|12>, <choice 1|31>), <int 100|4000>, <int 2|4>) ; the plan of part payments
## clock | clock hours times
# names: parse_clock/minutes_of/clock_minutes format_clock/clock_text/written_time worked_hours/time_on_duty/paid_minutes
"""Times of day at the qplace."""


def parse_clock(text):
    """Minutes since midnight of a time such as 7:05 or 7:05pm."""
    late = text.endswith("pm")
    hours, _, minutes = text.removesuffix("pm").removesuffix("am").partition(":")
    hour = int(hours) % 12 + 12 if late else int(hours)
    if text.endswith("am"):
        hour = hour % 12
    if hour > 23 or int(minutes or 0) > 59:
        raise ValueError(f"{text} is no time")
    return hour * 60 + int(minutes or 0)


def format_clock(minutes):
    """Minutes since midnight as a time; days go round."""
    hour, minute = divmod(minutes % (24 * 60), 60)
    return f"{hour}:{minute:02d}"


def worked_hours(start, end, pause=30):
    """Minutes of a stay without its pause, which only long stays have; it may pass midnight."""
    stay = (parse_clock(end) - parse_clock(start)) % (24 * 60)
    return stay - pause if stay > 6 * 60 else stay
---
parse_clock(<clock>) ; the minutes since midnight
format_clock(<int -200|3000>) ; a time as it is written
worked_hours(<clock>, <clock>, <choice 15|30|45>) ; the time someone was on duty
## accounts | accounts ledger books
# names: post_entries/book_all/apply_bookings running_balance/balance_course/daily_standing overdrawn_days/red_days/times_below
"""Accounts of a qperson."""
from @money import format_money


def post_entries(entries):
    """Balances by account after transfers (from, to, cents)."""
    balances = {}
    for source, target, cents in entries:
        balances[source] = balances.get(source, 0) - cents
        balances[target] = balances.get(target, 0) + cents
    return {name: balances[name] for name in sorted(balances)}


def running_balance(opening, changes):
    """The balance after each change."""
    balance, course = opening, []
    for change in changes:
        balance += change
        course.append(balance)
    return course


def overdrawn_days(opening, changes, limit=0):
    """How often the balance stands below the limit."""
    return sum(1 for balance in running_balance(opening, changes) if balance < limit)


def statement(name, opening, changes):
    """A short text of how an account stands."""
    closing = running_balance(opening, changes)[-1] if changes else opening
    word = "owes" if closing < 0 else "has"
    return f"{name} {word} {format_money(abs(closing))}"
---
post_entries(<transfers 4>) ; how every account stands after the bookings
running_balance(<int -20|90>, <changes 5>) ; the standing after each booking
overdrawn_days(<int -10|40>, <changes 6>, <choice 0|10>) ; how often an account was in the red
statement(<name>, <int -900|900>, <changes 3>) ; the sentence about an account
## roster | roster members people
# names: full_name/display_name/written_name sort_key/alphabetical_key/name_order initials_of/short_sign/monogram
"""Names of every qperson."""

PARTICLES = ("van", "de", "von", "da")


def full_name(record):
    """First, middle initial and last name of a record, as far as there are any."""
    middle = record.get("middle", "")
    parts = [record.get("first", ""), f"{middle[0]}." if middle else "", record.get("last", "")]
    return " ".join(part for part in parts if part)


def sort_key(name):
    """The name with the last part first; particles do not count."""
    parts = name.lower().split()
    while len(parts) > 1 and parts[-2] in PARTICLES:
        del parts[-2]
    return parts[-1:] + parts[:-1]


def initials_of(name, longest=3):
    """First letters in capitals; particles stay small."""
    letters = [part[0] if part in PARTICLES else part[0].upper() for part in name.split()]
    if len(letters) > longest:
        letters = letters[:longest - 1] + letters[-1:]
    return "".join(letters)
---
full_name(<person>) ; how somebody is called
sort_key(<fullname>) ; the place of a name in the alphabet
initials_of(<fullname>, <int 2|4>) ; the monogram
## grouping | grouping summary totals
# names: group_rows/rows_by/collected total_by/sums_by/added_up top_groups/largest/leading
"""Summing up qitem rows."""


def group_rows(rows, field):
    """Rows by the value of a field, in order of first occurrence."""
    groups = {}
    for row in rows:
        groups.setdefault(row.get(field), []).append(row)
    return groups


def total_by(rows, field, amount="qamount"):
    """Sums of an amount by the value of a field."""
    sums = {}
    for value, members in group_rows(rows, field).items():
        sums[value] = sum(row.get(amount, 0) for row in members)
    return sums


def top_groups(rows, field, most=2, amount="qamount"):
    """The largest sums, names where they are equal."""
    sums = total_by(rows, field, amount)
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], str(pair[0])))
    return ordered[:most]
---
group_rows(<rows 4>, "place") ; the entries sorted by qplace
total_by(<rows 5>, <choice "place"|"name">) ; the sums for each qplace
top_groups(<rows 6>, "place", <int 1|3>) ; where the qamount is largest
## report | report overview digest
# names: summary_lines/overview_rows/digest_text share_table/percent_rows/proportions trend_word/direction/described_change
"""The report on all qitems."""
from @averages import weighted_mean
from @grouping import top_groups, total_by


def summary_lines(rows, field="place"):
    """One line for each of the largest sums, then their mean."""
    leading = top_groups(rows, field, 3)
    lines = [f"{name}: {total}" for name, total in leading]
    if leading:
        mean = weighted_mean([total for _, total in leading], [1] * len(leading))
        lines.append(f"mean {mean:.1f}")
    return lines


def share_table(rows, field="place"):
    """Percent of the whole by the value of a field, rounded down."""
    sums = total_by(rows, field)
    whole = sum(sums.values())
    return {name: total * 100 // whole for name, total in sums.items()} if whole else {}


def trend_word(before, after, margin=5):
    """rising, falling or steady: by more than so many percent or not."""
    if before == 0:
        return "rising" if after > 0 else "steady"
    change = (after - before) * 100 / before
    if abs(change) <= margin:
        return "steady"
    return "rising" if change > 0 else "falling"
---
summary_lines(<rows 6>) ; the overview that is printed
share_table(<rows 5>) ; the percentages for each qplace
trend_word(<int 0|40>, <int 0|44>, <choice 5|10>) ; the word for how things develop
## permits | permits access rights
# names: may_enter/is_admitted/has_access granted_levels/effective_rights/all_rights expires_in/days_left/valid_for
"""Who may use the qplace."""

LEVELS = {"guest": 1, "member": 2, "staff": 3, "owner": 4}


def granted_levels(roles, includes):
    """All roles that somebody has, those that a role includes as well."""
    found, waiting = [], list(roles)
    while waiting:
        role = waiting.pop(0)
        if role not in found:
            found.append(role)
            waiting += includes.get(role, [])
    return sorted(found)


def may_enter(roles, least, hour, closed=(22, 6)):
    """Whether one of the roles is enough; staff alone between closing and opening."""
    level = max((LEVELS.get(role, 0) for role in roles), default=0)
    night = hour >= closed[0] or hour < closed[1]
    return level >= max(LEVELS[least], 3 if night else 0)


def expires_in(start, length, today, pauses=()):
    """Days until a permit ends; pauses (first, last) prolong it."""
    longer = sum(last - first + 1 for first, last in pauses if first >= start)
    return max(0, start + length + longer - today)
---
granted_levels(<roles>, <includes>) ; the rights somebody has in the end
may_enter(<roles>, <choice "guest"|"member"|"staff">, <int 0|23>) ; whether someone is let in
expires_in(<int 1|20>, <int 10|40>, <int 10|60>, <pauses>) ; for how many days a permit still holds
## readings | readings meters sensors
# names: consumption/used_between/meter_use calibrated/corrected_reading/adjusted alarm_rows/warnings_for/exceeded
"""Meters at the qplace."""


def consumption(readings, digits=4):
    """What was used between readings of a meter that starts again at zero."""
    top = 10 ** digits
    used = []
    for before, after in zip(readings, readings[1:]):
        used.append(after - before if after >= before else after + top - before)
    return used


def calibrated(value, table):
    """A raw value by a table of (raw, true) pairs, on straight lines between them."""
    for (low, true_low), (high, true_high) in zip(table, table[1:]):
        if low <= value <= high:
            return true_low + (true_high - true_low) * (value - low) / (high - low)
    return table[0][1] if value < table[0][0] else table[-1][1]


def alarm_rows(readings, limit, patience=2):
    """Places at which the limit has been passed so many times in a row."""
    found, run = [], 0
    for place, value in enumerate(readings):
        run = run + 1 if value > limit else 0
        if run >= patience:
            found.append(place)
    return found
---
consumption(<meter 5>) ; how much was used
calibrated(<int -5|45>, [(0, 1), (10, 12), (25, 24), (40, 41)]) ; the reading after correction
alarm_rows(<ints 8|0|30>, <int 10|20>, <int 1|3>) ; when the alarm goes off
'''
