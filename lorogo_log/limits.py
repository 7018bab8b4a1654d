"""The numbers of the log, and how they relate."""

SEGMENT_BYTES = 128 << 20
#: One frame's body: Arrow's 32-bit offsets must reach all of it.
BODY_BYTES_MAX = 1 << 30
#: The writer closes a batch that reached this; a single larger request is still one frame.
BATCH_BYTES = 8 << 20
QUEUE_BYTES = 64 << 20
QUEUE_ITEMS = 1 << 20
#: Rotations, fences, flushes and the like that wait in the queue.
QUEUE_ORDERS = 1024
#: An index entry per this many bytes of frames.
BLOCK_BYTES = 32 << 10
#: Zeros written behind a frame that runs out of them.
AHEAD_BYTES = 256 << 10
#: Frames above this gain nothing from zeros ahead: the data itself is most of the work.
AHEAD_FRAME_BYTES = 64 << 10
#: A cursor reads this much at a time.
READ_BYTES = 1 << 20
#: A lookup: a block of the index, and the frame that reaches over its end.
LOOKUP_BYTES = 2 * BLOCK_BYTES
#: Smaller frames are joined on their way to Arrow: one array costs as much as copying this.
ARROW_JOIN_BYTES = 64 << 10
#: How often a follower looks when the writer is in another process; when nothing comes, less and less often.
POLL_SECONDS = 0.02
POLL_SECONDS_MAX = 0.16
#: No epoch is above this: nobody gets there by counting, and there is always a next one.
EPOCH_MAX = 1 << 56
#: How long to wait for a lock, for background work at close, for a thread to end.
LOCK_SECONDS = 10.0
CLOSE_SECONDS = 60.0
#: How often a log that waits for room on a full disk looks for it.
FULL_SECONDS = 1.0

assert BATCH_BYTES <= BODY_BYTES_MAX < 1 << 31
assert AHEAD_FRAME_BYTES <= AHEAD_BYTES <= SEGMENT_BYTES
assert POLL_SECONDS <= POLL_SECONDS_MAX
assert BLOCK_BYTES < SEGMENT_BYTES
