//! Files that live in memory alone, to be shared with other processes through their descriptors.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

/// A new file in memory, of `length` bytes that are zero. It is gone when nobody has it open or mapped any more.
///
/// Memory is committed by the kernel when it is first touched.
///
/// # Errors
/// Those of `memfd_create(2)` and `ftruncate(2)`.
pub fn create(length: u64) -> io::Result<File> {
    // The flag is unknown before Linux 6.3 and demanded where the sysctl vm.memfd_noexec is 2.
    let file = match memfd_create(c"bellows", MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(c"bellows", MemfdFlags::CLOEXEC)?,
        file => file?,
    };
    ftruncate(&file, length)?;
    Ok(file.into())
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
}
