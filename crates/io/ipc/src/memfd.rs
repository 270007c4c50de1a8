//! Memory files, to share with other processes through their descriptors.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

/// Creates a memory file of `length` zero bytes. It is gone when it is no longer open or mapped anywhere.
///
/// The kernel commits memory when it is first touched.
///
/// # Errors
/// Those of `memfd_create(2)` and `ftruncate(2)`.
pub fn create(length: u64) -> io::Result<File> {
    with(MemfdFlags::empty(), length)
}

/// The same on 2 MiB pages from the system's reserve (`/proc/sys/vm/nr_hugepages`); a mapping takes as many as it
/// needs. `length` is a multiple of 2 MiB.
///
/// # Errors
/// As for [`create`]; `EINVAL` or `ENOSYS` if the kernel has no such pages.
pub fn huge(length: u64) -> io::Result<File> {
    with(MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB, length)
}

fn with(pages: MemfdFlags, length: u64) -> io::Result<File> {
    let flags = pages | MemfdFlags::CLOEXEC;
    // Linux before 6.3 does not know the flag; it is required if the sysctl vm.memfd_noexec is 2.
    let file = match memfd_create(c"bellows", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(c"bellows", flags | MemfdFlags::ALLOW_SEALING)?,
        file => file?,
    };
    ftruncate(&file, length)?;
    Ok(file.into())
}

/// Creates a memory file whose length cannot be changed.
///
/// # Errors
/// As for [`create`], and those of `fcntl(2)`.
pub fn sealed(length: u64) -> io::Result<File> {
    let file = create(length)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::SharedMapping;

    #[test]
    fn two_mappings_of_a_file_show_the_same_bytes() {
        let file = create(8192).unwrap();
        let [one, other] = [0, 4096].map(|offset| SharedMapping::new(&file, offset, 4096).unwrap());
        let whole = SharedMapping::new(&file, 0, 8192).unwrap();
        // SAFETY: all three mappings are 4,096 bytes or more, and only this test knows them.
        unsafe {
            one.start().add(4095).write_volatile(1);
            other.start().write_volatile(2);
            let bytes = [4094, 4095, 4096].map(|offset| whole.start().add(offset).read_volatile());
            assert_eq!(bytes, [0, 1, 2]);
        }
    }

    #[test]
    fn a_sealed_file_cannot_be_cut_short() {
        let file = sealed(8192).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8192);
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(10_000).is_err());
    }
}
