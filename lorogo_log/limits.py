"""Limits of the log, and their relations."""

SEGMENT_BYTES = 128 << 20
#: One frame's body: Arrow's 32-bit offsets must reach all of it.
BODY_BYTES_MAX = 1 << 30
#: The writer closes a batch of this size; a single larger request is still one frame.
BATCH_BYTES = 8 << 20
QUEUE_BYTES = 64 << 20
QUEUE_ITEMS = 1 << 20
#: Rotations, fences, flushes and other commands in the queue.
QUEUE_COMMANDS = 1024
#: An index entry per this many bytes of frames.
BLOCK_BYTES = 32 << 10
#: Zeros written behind a frame when the prepared zeros run out.
AHEAD_BYTES = 256 << 10
#: Larger frames gain nothing from zeros ahead: writing the data dominates.
AHEAD_FRAME_BYTES = 64 << 10
#: A cursor reads this much at a time.
READ_BYTES = 1 << 20
#: A lookup reads a block of the index, and the frame that extends beyond its end.
LOOKUP_BYTES = 2 * BLOCK_BYTES
#: Smaller frames are joined on their way to Arrow: one array costs as much as copying this.
ARROW_JOIN_BYTES = 64 << 10
#: Poll interval of a follower when the writer is in another process; it grows while no record arrives.
POLL_SECONDS = 0.02
POLL_SECONDS_MAX = 0.16
#: Upper bound of epochs, far above any reachable by counting: there is always a next one.
EPOCH_MAX = 1 << 56
#: Timeouts for a lock, for background work at close, and for the end of a thread.
LOCK_SECONDS = 10.0
CLOSE_SECONDS = 60.0
#: Interval at which a log on a full disk checks for space.
FULL_SECONDS = 1.0

assert BATCH_BYTES <= BODY_BYTES_MAX < 1 << 31
assert AHEAD_FRAME_BYTES <= AHEAD_BYTES <= SEGMENT_BYTES
assert POLL_SECONDS <= POLL_SECONDS_MAX
assert BLOCK_BYTES < SEGMENT_BYTES
