"""Module templates that compute: statistics, geometry, graphs, schedules, series."""

# ruff: noqa: E501  one call a line

NUMBERS = r'''
## averages | averages means centre
# names: weighted_mean/mean_with_weights/balanced_average trimmed_mean/mean_without_tails/robust_average
# names: moving_mean/rolling_mean/smoothed
"""Averages of qitem figures."""


def weighted_mean(values, weights):
    """The average in which each qitem counts by its weight."""
    if len(values) != len(weights):
        raise ValueError("as many weights as values")
    total = sum(weights)
    if total == 0:
        return 0.0
    return sum(value * weight for value, weight in zip(values, weights)) / total


def trimmed_mean(values, share=0.1):
    """The average without the smallest and the largest share of the values."""
    ordered = sorted(values)
    cut = int(len(ordered) * share)
    kept = ordered[cut:len(ordered) - cut]
    if not kept:
        return 0.0
    return sum(kept) / len(kept)


def moving_mean(values, width):
    """The mean of each window of neighbours."""
    result = []
    for end in range(1, len(values) + 1):
        window = values[max(0, end - width):end]
        result.append(sum(window) / len(window))
    return result
---
weighted_mean(<ints 4|1|30>, <ints 4|0|5>) ; the average qamount when some count more than others
weighted_mean(<ints 3|1|9>, <ints 2|1|4>) ; an average for which a weight is missing
trimmed_mean(<ints 9|0|60>, <choice 0.1|0.2|0.25>) ; the average once the extreme figures are left out
moving_mean(<ints 6|0|20>, <int 1|4>) ; the smoothed course of the qamount
## spread | spread deviation variation
# names: spread_of/deviation/scatter outliers_in/far_off/unusual_values quantile_at/percentile/rank_value
"""How far qitem figures lie apart."""
from @averages import weighted_mean


def spread_of(values):
    """The mean distance from the mean."""
    if len(values) < 2:
        return 0.0
    centre = weighted_mean(values, [1] * len(values))
    return sum(abs(value - centre) for value in values) / len(values)


def outliers_in(values, limit=2.0):
    """Values that lie more than limit spreads from the centre."""
    width = spread_of(values)
    centre = weighted_mean(values, [1] * len(values))
    return [value for value in values if width and abs(value - centre) > limit * width]


def quantile_at(values, share):
    """The value below which a share of the others lies, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
---
spread_of(<ints 5|0|40>) ; how much the qamount scatters
outliers_in(<skewed 7>, <choice 1.5|2.0>) ; the figures that stand out
quantile_at(<ints 6|0|50>, <choice 0.1|0.25|0.5|0.9>) ; the qamount that a given share stays below
## histogram | histogram buckets bins
# names: bin_counts/tally_by_range/bucket_sizes bar_rows/drawn_bars/text_bars
"""Counting qitem figures by range."""


def bin_counts(values, edges):
    """How many values fall between neighbouring edges; the last range is closed."""
    counts = [0] * (len(edges) - 1)
    for value in values:
        for place in range(len(edges) - 1):
            low, high = edges[place], edges[place + 1]
            last = place == len(edges) - 2
            if low <= value < high or (last and value == high):
                counts[place] += 1
                break
    return counts


def bar_rows(counts, width=20):
    """One line of stars for each count, the longest as wide as allowed."""
    top = max(counts, default=0)
    rows = []
    for count in counts:
        stars = count * width // top if top else 0
        rows.append("*" * stars + " " * (width - stars) + str(count).rjust(4))
    return rows
---
bin_counts(<ints 9|0|30>, [0, 10, 20, 30]) ; how many qitems fall into each range
bin_counts(<ints 6|0|12>, [0, 4, 8, 12]) ; the tally for ranges of four
bar_rows(<ints 4|0|9>, <choice 10|12>) ; the drawing with stars
## intervals | intervals spans periods
# names: merged_spans/joined_periods/union_of gaps_between/free_periods/holes overlap_length/shared_time/common_part
"""Spans of time in which a qplace is taken."""


def merged_spans(spans):
    """Spans that touch or overlap joined, in order."""
    result = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def gaps_between(spans, start, end):
    """The free spans between start and end."""
    free = []
    reached = start
    for begin, finish in merged_spans(spans):
        if begin > reached:
            free.append((reached, min(begin, end)))
        reached = max(reached, finish)
        if reached >= end:
            return free
    free.append((reached, end))
    return free


def overlap_length(first, second):
    """For how long two spans run side by side."""
    start = max(first[0], second[0])
    end = min(first[1], second[1])
    return max(0, end - start)
---
merged_spans(<spans 5>) ; the times when the qplace is in use
gaps_between(<spans 4>, 0, <int 20|40>) ; the hours that are still free
overlap_length(<span>, <span>) ; how long two bookings run side by side
## shifts | shifts rota duties
# names: assign_turns/share_out/plan_duties load_of/burden/hours_each earliest_slot/next_opening/first_fit
"""Who works when at the qplace."""
from @intervals import gaps_between, merged_spans


def assign_turns(people, turns):
    """Each turn to whoever has had the fewest so far; the first named wins a tie."""
    counts = {person: 0 for person in people}
    plan = []
    for turn in turns:
        chosen = min(people, key=lambda person: (counts[person], people.index(person)))
        counts[chosen] += 1
        plan.append((turn, chosen))
    return plan


def load_of(plan, hours):
    """Hours by person."""
    load = {}
    for turn, person in plan:
        load[person] = load.get(person, 0) + hours.get(turn, 0)
    return load


def earliest_slot(busy, length, start=8, end=20):
    """When a stay of this length first fits; None where it does not."""
    for begin, finish in gaps_between(busy, start, end):
        if finish - begin >= length:
            return begin
    return None


def busy_hours(busy):
    """How long the qplace is taken in all."""
    return sum(end - start for start, end in merged_spans(busy))
---
assign_turns(<names 3>, <words 5>) ; how duties are shared among the staff
load_of(<plan 4>, <table 4>) ; the hours each one works
earliest_slot(<dayspans 3>, <int 1|4>) ; the first opening that is long enough
busy_hours(<spans 4>) ; for how long the qplace is occupied
## grid | grid cells board
# names: neighbours_of/cells_around/adjacent flood_size/connected_cells/region_size cell_path/shortest_walk/steps_to
"""The floor of the qplace as cells."""
from collections import deque


def neighbours_of(cell, rows, columns):
    """Cells above, below, left and right that are on the floor."""
    row, column = cell
    around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    return [(r, c) for r, c in around if 0 <= r < rows and 0 <= c < columns]


def flood_size(floor, cell):
    """How many cells with the same mark hang together with this one."""
    mark = floor[cell[0]][cell[1]]
    seen = {cell}
    waiting = [cell]
    while waiting:
        here = waiting.pop()
        for other in neighbours_of(here, len(floor), len(floor[0])):
            if other not in seen and floor[other[0]][other[1]] == mark:
                seen.add(other)
                waiting.append(other)
    return len(seen)


def cell_path(floor, start, goal):
    """How many steps lead from start to goal past the walls; None where there is no way."""
    steps = {start: 0}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if here == goal:
            return steps[here]
        for other in neighbours_of(here, len(floor), len(floor[0])):
            if other not in steps and floor[other[0]][other[1]] != "#":
                steps[other] = steps[here] + 1
                waiting.append(other)
    return None
---
neighbours_of((<int 0|3>, <int 0|3>), 4, 4) ; the cells next to one
flood_size(<floor>, (<int 0|2>, <int 0|3>)) ; the size of the area with the same mark
cell_path(<floor>, (0, 0), (<int 1|2>, <int 2|3>)) ; the number of steps between two corners
## shapes | shapes outlines geometry
# names: polygon_area/surface_of/enclosed_area inside_outline/contains_point/within_shape bounding_box/frame_of/extent
"""Outlines of qplace plots."""


def polygon_area(points):
    """The area inside an outline, whichever way round it goes."""
    total = 0
    for place in range(len(points)):
        x1, y1 = points[place]
        x2, y2 = points[(place + 1) % len(points)]
        total += x1 * y2 - x2 * y1
    return abs(total) / 2


def inside_outline(points, point):
    """Whether a point lies inside."""
    x, y = point
    inside = False
    last = points[-1]
    for corner in points:
        if (corner[1] > y) != (last[1] > y):
            crossing = (last[0] - corner[0]) * (y - corner[1]) / (last[1] - corner[1]) + corner[0]
            if x < crossing:
                inside = not inside
        last = corner
    return inside


def bounding_box(points, margin=0):
    """The smallest upright rectangle around all points."""
    across = [point[0] for point in points]
    along = [point[1] for point in points]
    return (min(across) - margin, min(along) - margin, max(across) + margin, max(along) + margin)
---
polygon_area(<points 4>) ; the area of the plot
inside_outline([(0, 0), (8, 0), (8, 6), (0, 6)], <point>) ; whether a spot belongs to the plot
bounding_box(<points 5>, <int 0|2>) ; the rectangle around the plot
## routes | routes network journeys
# names: shortest_route/best_way/cheapest_path reachable_from/stops_in_reach/connected_places
# names: legs_of/stretches/route_parts
"""Ways between qplace stops."""
import heapq


def shortest_route(links, start, goal):
    """Length and stops of the shortest way; None where there is none."""
    waiting = [(0, start, [start])]
    done = set()
    while waiting:
        length, stop, stops = heapq.heappop(waiting)
        if stop == goal:
            return length, stops
        if stop in done:
            continue
        done.add(stop)
        for other, distance in sorted(links.get(stop, {}).items()):
            if other not in done:
                heapq.heappush(waiting, (length + distance, other, stops + [other]))
    return None


def reachable_from(links, start, limit):
    """Stops that are no further away than the limit, by name."""
    found = []
    for stop in sorted(links):
        route = shortest_route(links, start, stop)
        if route is not None and route[0] <= limit:
            found.append(stop)
    return found


def legs_of(links, stops):
    """Each stretch of a journey with its length."""
    return [(one, two, links[one][two]) for one, two in zip(stops, stops[1:])]
---
shortest_route(<links>, "a", <choice "d"|"e">) ; the way from one stop to another
reachable_from(<links>, "a", <int 3|12>) ; the stops close enough
legs_of(<links>, ["a", "b"]) ; the stretches of a journey
## ordering | ordering sequence precedence
# names: work_order/safe_sequence/ordered_steps depth_levels/stages_of/waves critical_length/longest_chain/total_span
"""In which order the work on a qitem is done."""


def work_order(needs):
    """Steps so that each comes after what it needs; names break ties.

    Raises ValueError where steps wait for each other.
    """
    open_steps = {step: set(before) for step, before in needs.items()}
    order = []
    while open_steps:
        ready = sorted(step for step, before in open_steps.items() if not before - set(order))
        if not ready:
            raise ValueError("steps wait for each other")
        order.append(ready[0])
        del open_steps[ready[0]]
    return order


def depth_levels(needs):
    """How many steps must come before each one, along the longest chain."""
    levels = {}
    for step in work_order(needs):
        levels[step] = max([levels[before] + 1 for before in needs[step]], default=0)
    return levels


def critical_length(needs, times):
    """How long all takes if nothing waits without need."""
    ends = {}
    for step in work_order(needs):
        start = max([ends[before] for before in needs[step]], default=0)
        ends[step] = start + times.get(step, 1)
    return max(ends.values(), default=0)
---
work_order(<needs>) ; the sequence in which the steps are done
depth_levels(<needs>) ; the stages of the work
critical_length(<needs>, <times>) ; the time until everything is finished
## series | series trend progress
# names: growth_rates/relative_changes/step_changes longest_rise/best_streak/rising_run fill_holes/interpolated/closed_gaps
"""The course of the qamount over time."""


def growth_rates(values):
    """The change from each value to the next, as a share of the first of the two."""
    rates = []
    for before, after in zip(values, values[1:]):
        rates.append((after - before) / before if before else 0.0)
    return rates


def longest_rise(values):
    """Length of the longest run in which each value exceeds the one before."""
    best = run = 1 if values else 0
    for place in range(1, len(values)):
        if values[place] > values[place - 1]:
            run += 1
        else:
            run = 1
        best = max(best, run)
    return best


def fill_holes(values):
    """Missing values (None) replaced on the straight line between known neighbours."""
    result = list(values)
    known = [place for place, value in enumerate(values) if value is not None]
    for left, right in zip(known, known[1:]):
        for place in range(left + 1, right):
            share = (place - left) / (right - left)
            result[place] = values[left] + (values[right] - values[left]) * share
    return result
---
growth_rates(<ints 5|1|30>) ; how the qamount changes from one time to the next
longest_rise(<ints 8|0|20>) ; the longest run of improvement
fill_holes(<holes 7>) ; the record once missing entries are filled in
## queueing | queueing waiting line
# names: waiting_times/delays/queue_waits peak_length/longest_queue/most_waiting served_by/done_until/finished_by
"""The line in front of the qplace."""


def waiting_times(arrivals, service):
    """How long each waits when one is served at a time, first come first served."""
    free = 0
    waits = []
    for arrival in sorted(arrivals):
        begin = max(arrival, free)
        waits.append(begin - arrival)
        free = begin + service
    return waits


def peak_length(arrivals, service):
    """How many are there at the busiest moment, the one being served included."""
    waits = waiting_times(arrivals, service)
    stays = [(arrival, arrival + wait + service) for arrival, wait in zip(sorted(arrivals), waits)]
    return max((sum(1 for start, end in stays if start <= now < end) for now, _ in stays), default=0)


def served_by(arrivals, service, moment):
    """How many have left by a moment."""
    waits = waiting_times(arrivals, service)
    return sum(1 for arrival, wait in zip(sorted(arrivals), waits) if arrival + wait + service <= moment)
---
waiting_times(<ints 5|0|15>, <int 2|5>) ; how long each one has to wait
peak_length(<ints 6|0|12>, <int 2|5>) ; the length of the line at its worst
served_by(<ints 5|0|12>, <int 2|4>, <int 8|20>) ; how many have left by a given time
## packing | packing loading boxes
# names: first_fit_boxes/fill_boxes/pack_loads best_selection/choose_load/most_valuable split_evenly/balanced_parts/even_shares
"""Fitting qitems into a qgroup."""


def first_fit_boxes(sizes, capacity):
    """Sizes sorted into boxes, largest first, each into the first box with room."""
    boxes = []
    for size in sorted(sizes, reverse=True):
        for box in boxes:
            if sum(box) + size <= capacity:
                box.append(size)
                break
        else:
            boxes.append([size])
    return boxes


def best_selection(loads, capacity):
    """The greatest value of loads (size, value) that fit together."""
    best = [0] * (capacity + 1)
    for size, value in loads:
        for room in range(capacity, size - 1, -1):
            best[room] = max(best[room], best[room - size] + value)
    return best[capacity]


def split_evenly(count, parts):
    """A count in nearly equal parts, the larger ones first."""
    share, rest = divmod(count, parts)
    return [share + 1 if place < rest else share for place in range(parts)]
---
first_fit_boxes(<ints 6|1|9>, <int 9|14>) ; how the load is spread over boxes
best_selection(<loads 4>, <int 6|12>) ; the most that fits by value
split_evenly(<int 5|40>, <int 2|7>) ; the even shares
'''
