"""Topics as produce rounds see them: which partition a record goes to, and who leads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from room_ingest.batches import REST, Node, Partition
from room_ingest.sink import Parcel

if TYPE_CHECKING:
    from room_ingest.cluster import Cluster
    from room_ingest.rounds import Rounds

log = structlog.get_logger(__name__)


class Lane:
    """One topic: the :class:`~room_ingest.sink.RecordSink` of its records."""

    def __init__(self, rounds: Rounds, topic: str) -> None:
        self._rounds = rounds
        self.topic = topic
        self.partitions: list[Partition] = []
        self.problem: str | None = f"topic {topic} is not known yet"

    def submit(self, parcel: Parcel) -> None:
        """See ``RecordSink``. Refuses at once before the topic is known, and where records have another place to go,
        what would most likely become late (:meth:`expects_little`)."""
        rounds = self._rounds
        partitions = self.partitions
        if not partitions or rounds.dead is not None:
            parcel.done(False)
            return
        partition = partitions[parcel.spread % len(partitions)]
        if rounds.doubtful and self.expects_little(partition):
            parcel.done(False)
            return
        parcel.born = rounds.now()
        partition.pending.append(parcel)
        rounds.outstanding += 1
        if partition.place == REST:
            rounds.put(partition)

    def expects_little(self, partition: Partition) -> bool:
        """Whether to refuse a record at once: no broker answers, or one became late in this partition, none was written
        since, and another one is trying right now, one for each broker at a time."""
        if self._rounds.away is not None:
            return True
        now = self._rounds.now()
        node = partition.node
        if not partition.stalled:
            return False
        if node is None or partition.pending or partition.batch is not None or node.trying_until > now:
            return True
        node.trying_until = now + self._rounds.limit
        return False

    def take_over(self, cluster: Cluster, nodes: dict[int, Node]) -> None:
        """Bring partitions and their leaders up to date. ``nodes`` gets those that are new."""
        count = cluster.partitions(self.topic)
        if not count:
            why = "may not be written" if cluster.denied(self.topic) else "does not exist"
            self.problem = f"topic {self.topic} {why}"
            for partition in self.partitions:
                partition.node = None
            return
        if self.problem is not None:
            self.problem = None
            log.info("topic found", topic=self.topic, partitions=count)
        partitions = self.partitions
        partitions += [Partition(self.topic.encode(), index) for index in range(len(partitions), count)]
        for gone in partitions[count:]:  # made again with fewer: what waits goes where the key would go now
            self._rounds.troubled.pop(gone, None)
            heir = partitions[gone.index % count]
            heir.pending += (gone.batch.items[gone.batch.told :] if gone.batch else []) + gone.pending
            gone.pending, gone.batch, gone.node = [], None, None
            if heir.pending and heir.place == REST:
                self._rounds.trouble(heir)
        del partitions[count:]
        for partition in partitions:
            leader = cluster.leader(self.topic, partition.index)
            partition.node = None if leader is None else nodes.setdefault(leader, Node(leader))
