"""All rules, listed by hand: what is on by default first, then what is advisory."""

from forkpoint.lint.rule import LintRule
from forkpoint.lint.rules import (
    call_under_branch,
    collective_in_dataset,
    collective_in_handler,
    collective_per_key,
    collective_under_branch,
    exception_swallowed,
    exit_before_collective,
    group_on_some_ranks,
    local_rank_as_rank,
    loop_count_differs,
    message_without_partner,
    module_skipped_by_data,
    order_differs,
    raise_on_some_ranks,
    root_outside_group,
    shape_differs,
    stop_flag_differs,
    timeout_shorter_than_work,
)

RULES: tuple[LintRule, ...] = (
    collective_under_branch.RULE,
    call_under_branch.RULE,
    exit_before_collective.RULE,
    stop_flag_differs.RULE,
    loop_count_differs.RULE,
    order_differs.RULE,
    collective_per_key.RULE,
    exception_swallowed.RULE,
    raise_on_some_ranks.RULE,
    collective_in_handler.RULE,
    collective_in_dataset.RULE,
    group_on_some_ranks.RULE,
    local_rank_as_rank.RULE,
    root_outside_group.RULE,
    message_without_partner.RULE,
    shape_differs.RULE,
    module_skipped_by_data.RULE,
    timeout_shorter_than_work.RULE,
)
