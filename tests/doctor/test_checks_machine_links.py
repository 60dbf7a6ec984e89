"""Checks of PCIe links, InfiniBand ports and network interfaces, from recorded sysfs."""

import pytest

from doctor.machine_samples import machine, with_gpus
from forkpoint.doctor.checks.links import PCIE_LINK
from forkpoint.doctor.checks.network import INFINIBAND, NETWORK_INTERFACES, is_chosen
from forkpoint.doctor.report import CheckStatus
from forkpoint.doctor.system import empty_machine, with_environ
from looping import for_each

GPU = "/sys/bus/pci/devices/0000:18:00.0"
ADAPTER = "/sys/bus/pci/devices/0000:19:00.0"
PORT = "/sys/class/infiniband/mlx5_1/ports/1"
ETH0 = "/sys/class/net/eth0"


@for_each(
    ("setting", "name", "port", "chosen"),
    [
        ("", "mlx5_0", "1", True),
        ("mlx5_1", "mlx5_10", "1", True),
        ("=mlx5_1", "mlx5_10", "1", False),
        ("=mlx5_1,mlx5_10", "mlx5_10", "1", True),
        ("mlx5_0:2", "mlx5_0", "1", False),
        ("mlx5_0:1", "mlx5_0", "1", True),
        ("^mlx5_1", "mlx5_10", "1", False),
        ("^=mlx5_1", "mlx5_10", "1", True),
        ("^docker,lo", "eth0", None, True),
        ("eth", "ib0", None, False),
    ],
)
def test_devices_are_chosen_as_nccl_chooses_them(setting: str, name: str, port: str | None, chosen: bool) -> None:
    assert is_chosen(setting, name, port) is chosen


def test_links_as_wide_and_fast_as_both_ends_can_are_ok() -> None:
    assert PCIE_LINK.look(machine("pci_h100.json")).status is CheckStatus.OK


def test_a_link_that_lost_half_its_width_is_bad() -> None:
    result = PCIE_LINK.look(machine("pci_h100.json", texts={f"{GPU}/current_link_width": "8\n"}))

    assert (result.status, result.says) == (CheckStatus.BAD, "GPU 0000:18:00.0 runs x8 of x16")


def test_a_narrow_slot_is_no_fault_of_the_link() -> None:
    narrow = {f"{GPU}/current_link_width": "8\n", f"{GPU}/../max_link_width": "8\n"}

    assert PCIE_LINK.look(machine("pci_h100.json", texts=narrow)).status is CheckStatus.OK


def test_the_speed_of_an_adapter_counts_always_and_that_of_a_gpu_while_it_works() -> None:
    slow_adapter = machine("pci_h100.json", texts={f"{ADAPTER}/current_link_speed": "16.0 GT/s PCIe\n"})
    slow_gpu = machine("pci_h100.json", texts={f"{GPU}/current_link_speed": "2.5 GT/s PCIe\n"})
    works = {"reasons": (0x4, 0x4)}

    assert PCIE_LINK.look(slow_adapter).says == "adapter 0000:19:00.0 runs 16 of 32 GT/s"
    assert PCIE_LINK.look(slow_gpu).status is CheckStatus.OK
    assert PCIE_LINK.look(with_gpus(slow_gpu)).status is CheckStatus.OK
    assert PCIE_LINK.look(with_gpus(slow_gpu, works)).says == "GPU 0000:18:00.0 runs 2.5 of 32 GT/s"


@for_each("width", ["255\n", "63\n", "0\n", "\n"])
def test_a_bus_that_tells_no_widths_is_skipped(width: str) -> None:
    unknown = {f"{device}/current_link_width": width for device in (GPU, ADAPTER)}

    assert PCIE_LINK.look(machine("pci_h100.json", texts=unknown)).status is CheckStatus.SKIPPED


def test_machines_without_links_are_skipped() -> None:
    assert PCIE_LINK.look(machine("pci_vm.json")).status is CheckStatus.SKIPPED
    assert PCIE_LINK.look(empty_machine()).status is CheckStatus.SKIPPED


def test_sound_ports_are_ok_and_keep_their_counters_for_later() -> None:
    result = INFINIBAND.look(machine("infiniband_h100.json"))

    assert result.status is CheckStatus.OK
    assert ("ports", "mlx5_0/1 ACTIVE 400 Gb/s, mlx5_1/1 ACTIVE 400 Gb/s") in result.details
    assert ("count mlx5_0/1 symbol_error", "0") in result.details


def test_no_adapter_is_skipped() -> None:
    assert INFINIBAND.look(machine("network_vm.json")).status is CheckStatus.SKIPPED


@for_each(("state", "physical"), [("1: DOWN", "2: Polling"), ("2: INIT", "5: LinkUp"), ("3: ARMED", "5: LinkUp")])
def test_a_port_that_is_on_and_not_active_is_bad(state: str, physical: str) -> None:
    texts = {f"{PORT}/state": f"{state}\n", f"{PORT}/phys_state": f"{physical}\n"}

    result = INFINIBAND.look(machine("infiniband_h100.json", texts=texts))

    assert result.status is CheckStatus.BAD
    assert result.says.startswith("mlx5_1/1 is ")
    assert "mlx5_0" not in result.says


def test_a_port_that_jobs_do_not_use_does_not_matter() -> None:
    down = machine("infiniband_h100.json", texts={f"{PORT}/state": "1: DOWN\n", f"{PORT}/phys_state": "2: Polling\n"})

    assert INFINIBAND.look(with_environ(down, {"NCCL_IB_HCA": "=mlx5_0"})).status is CheckStatus.OK
    assert INFINIBAND.look(with_environ(down, {"NCCL_IB_HCA": "mlx5_1:1"})).status is CheckStatus.BAD


def test_a_port_that_was_switched_off_is_taken_as_not_wanted() -> None:
    both = machine("infiniband_h100.json", "infiniband_disabled_port.json")

    assert INFINIBAND.look(both).status is CheckStatus.OK
    assert INFINIBAND.look(machine("infiniband_disabled_port.json")).status is CheckStatus.SKIPPED


def test_a_setting_that_names_no_adapter_is_bad() -> None:
    result = INFINIBAND.look(with_environ(machine("infiniband_h100.json"), {"NCCL_IB_HCA": "mlx4_0"}))

    assert (result.status, result.says) == (CheckStatus.BAD, "NCCL_IB_HCA=mlx4_0 names none of mlx5_0/1, mlx5_1/1")


def test_a_port_slower_than_others_of_its_board_is_bad() -> None:
    slow = {f"{PORT}/rate": "200 Gb/sec (4X HDR)\n"}
    another_board = {**slow, "/sys/class/infiniband/mlx5_1/board_id": "MT_0000000223\n"}

    result = INFINIBAND.look(machine("infiniband_h100.json", texts=slow))

    assert (result.status, result.says) == (CheckStatus.BAD, "mlx5_1/1 runs at 200 Gb/s, others of its board at 400")
    assert INFINIBAND.look(machine("infiniband_h100.json", texts=another_board)).status is CheckStatus.OK


@for_each(
    ("counter", "status"),
    [
        ("counters/symbol_error", CheckStatus.BAD),
        ("counters/link_downed", CheckStatus.BAD),
        ("hw_counters/local_ack_timeout_err", CheckStatus.BAD),
        ("counters/port_xmit_wait", CheckStatus.OK),
        ("counters/port_xmit_discards", CheckStatus.OK),
        ("hw_counters/out_of_sequence", CheckStatus.OK),
    ],
)
def test_counters_of_a_bad_link_may_be_old_but_must_not_move(counter: str, status: CheckStatus) -> None:
    before, after = {f"{PORT}/{counter}": "70\n"}, {f"{PORT}/{counter}": "72\n"}

    still = INFINIBAND.look(machine("infiniband_h100.json", texts=before, later=before))
    moving = INFINIBAND.look(machine("infiniband_h100.json", texts=before, later=after))

    assert still.status is CheckStatus.OK
    assert moving.status is status


def test_a_counter_that_was_cleared_in_between_does_not_move() -> None:
    before, after = {f"{PORT}/counters/symbol_error": "70\n"}, {f"{PORT}/counters/symbol_error": "0\n"}

    assert INFINIBAND.look(machine("infiniband_h100.json", texts=before, later=after)).status is CheckStatus.OK


def test_a_sound_interface_is_ok_and_bridges_do_not_matter() -> None:
    result = NETWORK_INTERFACES.look(machine("network_vm.json"))

    assert result.status is CheckStatus.OK
    assert result.says.startswith("eth0: up")


def test_a_machine_without_interfaces_is_skipped() -> None:
    assert NETWORK_INTERFACES.look(empty_machine()).status is CheckStatus.SKIPPED
    loopback = machine(texts={"/sys/class/net/lo/flags": "0x9\n"})
    assert NETWORK_INTERFACES.look(loopback).status is CheckStatus.SKIPPED


@pytest.mark.parametrize("variable", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_a_name_that_no_interface_has_is_bad(variable: str) -> None:
    vm = machine("network_vm.json")

    result = NETWORK_INTERFACES.look(with_environ(vm, {variable: "ib0"}))

    assert result.status is CheckStatus.BAD
    assert result.says == f"{variable}=ib0 names no interface of this node: here are eth0, ifb0, lo"
    assert NETWORK_INTERFACES.look(with_environ(vm, {variable: "eth"})).status is CheckStatus.OK
    assert NETWORK_INTERFACES.look(with_environ(vm, {variable: "^docker"})).status is CheckStatus.OK


def test_an_interface_the_job_uses_must_be_up() -> None:
    vm = machine("network_vm.json", texts={f"{ETH0}/carrier": "0\n"})

    assert NETWORK_INTERFACES.look(vm).says == "eth0 is down or has no carrier"
    assert NETWORK_INTERFACES.look(with_environ(vm, {"NCCL_SOCKET_IFNAME": "lo"})).status is CheckStatus.OK


@for_each(
    ("file", "status"),
    [
        ("statistics/rx_crc_errors", CheckStatus.BAD),
        ("statistics/tx_errors", CheckStatus.BAD),
        ("carrier_changes", CheckStatus.BAD),
        ("statistics/rx_dropped", CheckStatus.OK),
    ],
)
def test_errors_must_not_grow_and_dropped_frames_may(file: str, status: CheckStatus) -> None:
    before, after = {f"{ETH0}/{file}": "7\n"}, {f"{ETH0}/{file}": "8\n"}

    assert NETWORK_INTERFACES.look(machine("network_vm.json", texts=before, later=before)).status is CheckStatus.OK
    assert NETWORK_INTERFACES.look(machine("network_vm.json", texts=before, later=after)).status is status


def test_an_interface_slower_than_its_like_is_bad() -> None:
    eth1 = {
        "/sys/class/net/eth1/flags": "0x1003\n",
        "/sys/class/net/eth1/carrier": "1\n",
        "/sys/class/net/eth1/speed": "100000\n",
        "/sys/class/net/eth1/device/vendor": "0x15b3\n",
        "/sys/class/net/eth1/device/device": "0x1021\n",
    }
    eth2 = {file.replace("eth1", "eth2"): text for file, text in eth1.items()}
    slow = {**eth1, **eth2, "/sys/class/net/eth2/speed": "10000\n"}
    unlike = {**slow, "/sys/class/net/eth2/device/device": "0x1013\n"}

    result = NETWORK_INTERFACES.look(machine("network_vm.json", texts=slow))

    assert (result.status, result.says) == (
        CheckStatus.BAD,
        "eth2 runs at 10000 Mb/s, others of its hardware at 100000",
    )
    assert NETWORK_INTERFACES.look(machine("network_vm.json", texts=unlike)).status is CheckStatus.OK


def test_the_default_route_may_be_of_ipv6() -> None:
    route = (
        f"{'0' * 32} 00 {'0' * 32} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n"
    )
    refusing = f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 00000001 00000000 00200200       lo\n"
    only = {"/proc/net/route": None, "/proc/net/ipv6_route": refusing + route}

    assert NETWORK_INTERFACES.look(machine("network_vm.json", texts=only)).says.startswith("eth0: up")
    nothing = {"/proc/net/route": None, "/proc/net/ipv6_route": refusing}
    assert NETWORK_INTERFACES.look(machine("network_vm.json", texts=nothing)).status is CheckStatus.SKIPPED
