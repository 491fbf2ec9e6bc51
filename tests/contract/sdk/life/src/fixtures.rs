//! What the stories ask for again and again.

use oxide::types;

/// The project in which everything happens.
pub const PROJECT: &str = "sdk";

pub const GIB: u64 = 1 << 30;

/// A name that is known to be one.
pub fn name(text: &str) -> types::Name {
    text.parse().expect("a valid name")
}

pub fn block_size(bytes: i64) -> types::BlockSize {
    bytes.try_into().expect("a valid block size")
}

/// The backend of a blank distributed disk.
pub fn blank() -> types::DiskBackend {
    types::DiskBackend::Distributed(types::DiskSource::Blank {
        block_size: block_size(512),
    })
}

/// The IPv4 address of the default pool that comes next.
pub fn any_ipv4() -> types::PoolSelector {
    types::PoolSelector::Auto {
        ip_version: Some(types::IpVersion::V4),
    }
}

/// An instance of the smallest size, without a NIC and stopped.
pub fn bare_instance(name: &str) -> types::builder::InstanceCreate {
    types::InstanceCreate::builder()
        .name(name)
        .description("")
        .hostname(name)
        .ncpus(1)
        .memory(GIB)
        .network_interfaces(types::InstanceNetworkInterfaceAttachment::None)
        .start(false)
}
