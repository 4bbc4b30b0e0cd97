"""The sensors, one file each: what they watch is in their first line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchsan.observe.recorder import Recorder, Sensor


def make_sensors(recorder: Recorder) -> list[Sensor]:
    from torchsan.observe.compiled.sensor import CompiledSensor
    from torchsan.observe.kept.growth import GrowthSensor
    from torchsan.observe.sensors.captures import CaptureSensor
    from torchsan.observe.sensors.checkpoints import CheckpointSensor
    from torchsan.observe.sensors.collectives import CollectiveSensor
    from torchsan.observe.sensors.exposure import ExposureSensor
    from torchsan.observe.sensors.graph import GraphSensor
    from torchsan.observe.sensors.holders import HolderSensor
    from torchsan.observe.sensors.optimizers import OptimizerSensor
    from torchsan.observe.sensors.replicas import ReplicaSensor
    from torchsan.observe.sensors.shards import ShardSensor
    from torchsan.observe.sensors.sharing import SharingSensor
    from torchsan.observe.sensors.snapshots import SnapshotSensor
    from torchsan.observe.sensors.warned import WarningSensor
    from torchsan.observe.sensors.writes import WriteSensor

    warned = WarningSensor(recorder)
    graph = GraphSensor(recorder, warned)
    exposure = ExposureSensor(recorder, graph)
    writes = WriteSensor(recorder, exposure)
    if not recorder.judging:
        return [warned, writes, CaptureSensor(recorder), CompiledSensor(recorder)]
    sensors: list[Sensor] = [warned, graph, exposure, writes, HolderSensor(writes.aliases)]
    sensors += [recorder.steps, OptimizerSensor(recorder)]
    sensors.append(CheckpointSensor(recorder, graph))
    replicas = ReplicaSensor(recorder)
    collectives = CollectiveSensor(recorder, replicas.wrapped)
    sensors += [SnapshotSensor(recorder), CaptureSensor(recorder), replicas, collectives]
    sensors += [ShardSensor(recorder, replicas, collectives.inflight), SharingSensor(recorder, replicas)]
    sensors.append(GrowthSensor(recorder))
    if recorder.memory:
        from torchsan.model.memory import Memory
        from torchsan.observe.kept.copies import CopySensor
        from torchsan.observe.kept.measuring import MemorySensor

        recorder.report.memory = Memory()
        sensors.insert(0, MemorySensor(recorder, recorder.report.memory))
        sensors.append(CopySensor(recorder, exposure.exposed_at))
    sensors.append(CompiledSensor(recorder, exposure, writes.aliases))
    if recorder.timeline:
        from torchsan.observe.sensors.timeline import TimelineSensor

        sensors.append(TimelineSensor(recorder))
    return sensors
