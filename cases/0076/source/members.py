"""Scores of all members, as found on the file system of this node."""

PUBLISHED = {
    0: {0: 0.31, 1: 0.29, 2: 0.33, 3: 0.36},
    1: {0: 0.44, 1: 0.40, 2: 0.47, 3: 0.52},
    2: {0: 0.58, 1: 0.55, 2: 0.57, 3: 0.61},
}
NOT_YET_VISIBLE = {(1, 1): 3}  # (rank, turn): the member whose file this node does not see yet


def scoreboard(rank, turn):
    board = dict(PUBLISHED[min(turn, 2)])
    late = NOT_YET_VISIBLE.get((rank, turn))
    if late is not None:
        board[late] = PUBLISHED[turn - 1][late]
    return board
