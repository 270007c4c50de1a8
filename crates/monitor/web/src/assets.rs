//! The page: HTML, style and script, which are part of the program. The page loads nothing else.

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its path.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its contents.
    pub text: &'static str,
}

/// The files of the page. Its style is completed by that of pictures, at [`GRAPH_STYLE`].
pub const ASSETS: [Asset; 4] = [
    Asset { path: "/", media_type: "text/html; charset=utf-8", text: include_str!("../assets/index.html") },
    Asset { path: "/page.css", media_type: "text/css; charset=utf-8", text: include_str!("../assets/page.css") },
    Asset { path: "/page.js", media_type: "text/javascript; charset=utf-8", text: include_str!("../assets/page.js") },
    Asset { path: "/icon.svg", media_type: "image/svg+xml", text: include_str!("../assets/icon.svg") },
];

/// The path of the style of pictures.
pub const GRAPH_STYLE: &str = "/graph.css";

/// What the page may load and do, as the header `Content-Security-Policy`: only files and data of its own origin.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit on the page, in bytes.
    const MAX_PAGE: usize = 300 << 10;

    #[test]
    fn the_page_is_small() {
        let size = ASSETS.iter().map(|asset| asset.text.len()).sum::<usize>() + bellows_graph::style().len();
        assert!(size <= MAX_PAGE, "{size} bytes");
        let page = include_str!("../../../../docs/web.md");
        let most = 10 * size.div_ceil(10 << 10);
        assert!(page.contains(&format!("less than {most} KiB")), "docs/web.md, of {size} bytes");
    }

    #[test]
    fn the_page_names_no_other_origin() {
        // The namespaces of SVG and of XHTML are names, not addresses.
        for Asset { path, text, .. } in ASSETS {
            let rest = text.replace("http://www.w3.org/2000/svg", "");
            for scheme in ["http:", "https:", "ws://", "wss://", "@import", "url("] {
                assert!(!rest.contains(scheme), "{path} contains {scheme}");
            }
        }
    }

    #[test]
    fn the_page_obeys_its_policy() {
        let html = ASSETS[0].text;
        for forbidden in [" style=", "<style", " onclick=", " onload=", "javascript:"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        // A script is a file.
        assert_eq!(html.matches("<script").count(), html.matches("<script src=").count());
    }
}
