//! Gives back memory whose content can be read again.

/// Takes the program's constants out of this process's memory, of which this is one. Whoever reads one next gets it from the
/// system's copy of the program's file, or from the file. Does nothing on other systems than Linux, and for what lies in no
/// file.
pub fn release_constants(one: &'static [u8]) {
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = one;
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let Some((start, end)) = unchanged_mapping(&maps, one.as_ptr() as usize) else { return };
        let start = one.as_ptr().wrapping_sub(one.as_ptr() as usize - start);
        #[expect(unsafe_code, reason = "no library offers this for a part of the program")]
        // SAFETY: the pages are mapped from a file and nobody may write them or has done so, so that they have the file's
        // content, which they get again when they are read.
        unsafe {
            libc::madvise(start.cast_mut().cast(), end - start as usize, libc::MADV_DONTNEED);
        }
    }
}

/// The range of the mapping with an address, as `/proc/self/smaps` has it, if it is one of a file that is only read and of
/// which no page has ever been written, as those with addresses to other libraries are when a program starts.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn unchanged_mapping(maps: &str, address: usize) -> Option<(usize, usize)> {
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    let range = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some((number(from)?, number(to)?))
    };
    let has_address = |line: &&str| range(line).is_some_and(|(from, to)| (from..to).contains(&address));
    let mut lines = maps.lines().skip_while(|line| !has_address(line));
    let mapping = lines.next()?;
    // The range, the mode, the offset, the device and the file's number.
    let fields: Vec<&str> = mapping.split_whitespace().collect();
    let is_of_file = fields.get(1) == Some(&"r--p") && fields.get(4).is_some_and(|file| *file != "0");
    let own: Vec<&str> = lines.take_while(|line| range(line).is_none()).collect();
    let has_none = |name: &str| {
        let amount = own.iter().find_map(|line| line.strip_prefix(name));
        amount.is_some_and(|amount| amount.trim() == "0 kB")
    };
    range(mapping).filter(|_| is_of_file && has_none("Anonymous:") && has_none("Swap:"))
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    const LEN: usize = 4 << 20;
    static CONSTANT: [u8; LEN] = [7; LEN];

    /// The resident KiB of the mapping of an address.
    fn resident_kib(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let lines = maps.lines().skip_while(|line| {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            let range = range.and_then(|(from, to)| Some(number(from)?..number(to)?));
            !range.is_some_and(|range| range.contains(&address))
        });
        let resident = lines.filter_map(|line| line.strip_prefix("Rss:")).next().unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn is_whole(bytes: &[u8]) -> bool {
        std::hint::black_box(bytes).iter().all(|&byte| byte == 7)
    }

    #[test]
    fn a_constant_leaves_the_memory_and_is_read_again() {
        assert!(is_whole(&CONSTANT));
        let before = resident_kib(CONSTANT.as_ptr() as usize);
        release_constants(&CONSTANT);
        let after = resident_kib(CONSTANT.as_ptr() as usize);
        // Other tests read other constants meanwhile.
        assert!(before >= after + (LEN >> 10) / 2, "{before} KiB, then {after} KiB");
        assert!(is_whole(&CONSTANT));
    }

    #[test]
    fn only_a_mapping_of_a_file_that_nobody_has_written_is_released() {
        let text = |mode: &str, file: &str, written: &str, swapped: &str| {
            format!(
                "00001000-00003000 r--p 0 08:01 7 /other\nAnonymous: 0 kB\nSwap: 0 kB\n\
                 00003000-00005000 {mode} 0 08:01 {file} /program\nRss: 8 kB\nAnonymous: {written} kB\nSwap: {swapped} kB\n\
                 00005000-00006000 rw-p 0 00:00 0\nAnonymous: 4 kB\nSwap: 0 kB\n"
            )
        };
        let found = |maps: String| unchanged_mapping(&maps, 0x3004);
        assert_eq!(found(text("r--p", "7", "0", "0")), Some((0x3000, 0x5000)));
        for other in [
            ("rw-p", "7", "0", "0"),
            ("r--p", "0", "0", "0"),
            ("r--p", "7", "4", "0"),
            ("r--p", "7", "0", "4"),
        ] {
            assert_eq!(found(text(other.0, other.1, other.2, other.3)), None, "{other:?}");
        }
        assert_eq!(unchanged_mapping(&text("r--p", "7", "0", "0"), 0x9000), None);
    }

    #[test]
    fn what_lies_in_no_file_is_kept() {
        let bytes: &'static [u8] = Box::leak(vec![7; LEN].into_boxed_slice());
        release_constants(bytes);
        assert!(is_whole(bytes));
    }
}
