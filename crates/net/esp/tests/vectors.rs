//! Published examples, by every implementation.

mod support;

use bellows_esp::{Algorithm, Cipher, Inbound, InboundSettings, KeyProgress, Keys, Spi};
use support::hex;

struct Example {
    algorithm: Algorithm,
    key: &'static str,
    /// Salt and IV.
    nonce: &'static str,
    aad: &'static str,
    plain: &'static str,
    sealed: &'static str,
    icv: &'static str,
}

/// Shorter to write: AES-GCM, by the length of its key.
const fn gcm(
    key: &'static str,
    nonce: &'static str,
    aad: &'static str,
    plain: &'static str,
    sealed: &'static str,
    icv: &'static str,
) -> Example {
    let algorithm = if key.len() == 32 { Algorithm::Aes128Gcm } else { Algorithm::Aes256Gcm };
    Example { algorithm, key, nonce, aad, plain, sealed, icv }
}

const ZERO_128: &str = "00000000000000000000000000000000";
const ZERO_256: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const KEY_128: &str = "feffe9928665731c6d6a8f9467308308";
const KEY_256: &str = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
const NONCE: &str = "cafebabefacedbaddecaf888";
const AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";

/// McGrew and Viega, "The Galois/Counter Mode of Operation", appendix B: the cases with nonces of 96 bits.
const GCM: [Example; 8] = [
    gcm(ZERO_128, "000000000000000000000000", "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"),
    gcm(
        ZERO_128,
        "000000000000000000000000",
        "",
        ZERO_128,
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    ),
    gcm(
        KEY_128,
        NONCE,
        "",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
        "4d5c2af327cd64a62cf35abd2ba6fab4",
    ),
    gcm(
        KEY_128,
        NONCE,
        AAD,
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
        "5bc94fbc3221a5db94fae95ae7121a47",
    ),
    gcm(ZERO_256, "000000000000000000000000", "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"),
    gcm(
        ZERO_256,
        "000000000000000000000000",
        "",
        ZERO_128,
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ),
    gcm(
        KEY_256,
        NONCE,
        "",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
        "b094dac5d93471bdec1a502270e3cc6c",
    ),
    gcm(
        KEY_256,
        NONCE,
        AAD,
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ),
];

/// draft-mcgrew-gcm-test-01, section 4: ESP packets, with their padding. AES-192 is left out.
const ESP: [Example; 13] = [
    gcm(
        "4c80cdefbb5d10da906ac73c3613a634",
        "2e443b684956ed7e3b244cfe",
        "000043218765432100000000",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000\
         00000000045f736970045f756470037369700963796265726369747902646b00\
         0021000101020201",
        "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34\
         cfa2436f14a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce\
         61bc17d768fd9732",
        "459018148f6cbe722fd04796562dfdb4",
    ),
    gcm(
        KEY_128,
        NONCE,
        "0000a5f80000000a",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d00100\
         0001000000000000037369700963796265726369747902646b00000100010001",
        "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c\
         3de81827c10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1",
        "83b70d3aa8bc6ee4c309e9d85a41ad4a",
    ),
    gcm(
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "112233440102030405060708",
        "4a2cbfe300000002",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000\
         7002400020bf0000020405b40101040201020201",
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763\
         748a637985771d347f0545659f14e99def842d8e",
        "b335f4eecfdbf831824b4c4915956c96",
    ),
    gcm(
        ZERO_128,
        "000000000000000000000000",
        "0000000000000001",
        "4500003c99c500008001cb7a40679318010101010800075c0200440061626364\
         65666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284\
         456476492719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3",
        "f821d496eeb096e98ad2b69e4799c71d",
    ),
    gcm(
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "42f67e3f1010101010101010",
        "4500003c99c300008001cb7c40679318010101010800085c0200430061626364\
         65666768696a6b6c6d6e6f707172737475767761626364656667686901020201",
        "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c357917\
         65acbd8701ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320a",
        "e0d731cc978ecafaeae88f00e80d6e48",
    ),
    gcm(
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "42f67e3f1010101010101010",
        "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed",
        "369f071f35e034be95f112e4e7d05d35",
    ),
    gcm(
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "000001000000000000000001",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d5\
         00004e20001e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec95\
         9b6266c04722b14923010101",
        "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f\
         9190feebaf2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c22\
         6f2127b27db35724e7845d68",
        "651f57e65f354f75ff17015769623436",
    ),
    gcm(
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "17405e67156f3126dd0db99b",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb712602\
         50101f646d540001",
        "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57f\
         f4d3a31ce673119e",
        "451626c2415771e3b7eebca614c89b35",
    ),
    gcm(
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "42f67e3f1010101010101010",
        "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b\
         000001e0001e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b32\
         5ae270c03899493915010101",
        "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d541828\
         00cadb0f68d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39\
         ab533163aad4550ee5160975",
        "cdb608c5769189609763b8e18caa81e2",
    ),
    gcm(
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "17405e67156f3126dd0db99b",
        "636973636f0172756c657301746865016e6574776501646566696e6501746865\
         746563686e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f\
         72726f7701020201",
        "d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18\
         d0a6df10e5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b0\
         12a49363412364f8",
        "c0cac587f249e56b11e24f30e44ccc76",
    ),
    gcm(
        "7d773d00c144c525ac619d18c84a3f47",
        "d966426743457e9182443bc6",
        "335467aeffffffff",
        "01020201",
        "437f866b",
        "cb3f699fe9b0822bac961c4504bef270",
    ),
    gcm(
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "000001000000000000000001",
        "746f016265016f72016e6f7401746f0162650001",
        "29c9fc69a197d038ccdd14e2ddfcaa0543332164",
        "412503524303ed3c6c5f283843af8c3e",
    ),
    gcm(
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961",
        "7475726e333021696765746d",
        "796b6963ffffffffffffffff",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd0200070061626364\
         65666768696a6b6c6d6e6f707172737401020201",
        "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a86\
         4cd3d78ca4ae68a32b42458fb57dbe821dcc63b9",
        "d0937ba2945f669368661a329fb4c053",
    ),
];

/// RFC 7634, appendix A.
const CHACHA: Example = Example {
    algorithm: Algorithm::ChaCha20Poly1305,
    key: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
    nonce: "a0a1a2a31011121314151617",
    aad: "0102030400000005",
    plain: "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10\
            0007362708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223\
            2425262728292a2b2c2d2e2f303132333435363701020204",
    sealed: "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c6\
             14ee8099d52844eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3\
             cbec163fac469b502773f6fb94e664da9165b82829f641e0",
    icv: "76aaa8266b7fb0f7b11b369907e1ad43",
};

impl Example {
    fn keys(&self) -> Keys {
        Keys::parse_parts(self.algorithm, self.key, &self.nonce[..8]).unwrap()
    }

    /// The cipher alone seals and opens it.
    fn check_cipher(&self) {
        let cipher = Cipher::new(&self.keys());
        let (iv, aad) = (hex(&self.nonce[8..]).try_into().unwrap(), hex(self.aad));
        let mut data = hex(self.plain);
        let mut icv = [0; 16];
        cipher.seal(&iv, &aad, &mut data, &mut icv);
        assert_eq!(data, hex(self.sealed), "{}", self.plain);
        assert_eq!(icv[..], hex(self.icv), "{}", self.plain);
        cipher.open(&iv, &aad, &mut data, &icv).unwrap();
        assert_eq!(data, hex(self.plain));
    }

    /// As an ESP packet, unless its SPI is reserved.
    fn check_packet(&self) -> bool {
        let aad = hex(self.aad);
        let Ok(spi) = Spi::new(u32::from_be_bytes(aad[..4].try_into().unwrap())) else { return false };
        let mut number = [0; 8];
        number[12 - aad.len()..].copy_from_slice(&aad[4..]);
        let sequence = u64::from_be_bytes(number);
        let settings = InboundSettings { is_extended: aad.len() == 12, ..InboundSettings::default() };
        let cipher = Cipher::new(&self.keys());
        let mut inbound = Inbound::with_cipher(spi, cipher, settings, KeyProgress::after(sequence - 1)).unwrap();
        let mut esp = [&aad[..4], &number[4..], &hex(&self.nonce[8..]), &hex(self.sealed), &hex(self.icv)].concat();
        let opened = inbound.open(&mut esp).unwrap();
        let plain = hex(self.plain);
        let [.., padding, next_header] = plain[..] else { panic!("no trailer") };
        assert_eq!(opened.sequence, sequence);
        assert_eq!(opened.next_header, next_header);
        assert_eq!(esp[opened.payload], plain[..plain.len() - 2 - usize::from(padding)]);
        true
    }
}

#[test]
fn the_examples_of_gcm() {
    GCM.iter().for_each(Example::check_cipher);
}

#[test]
fn the_examples_of_aes_gcm_in_esp() {
    ESP.iter().for_each(Example::check_cipher);
    let packets = ESP.iter().filter(|example| example.check_packet()).count();
    assert_eq!(packets, ESP.len() - 1, "all but the one of SPI 0");
}

#[test]
fn the_example_of_chacha20_poly1305_in_esp() {
    CHACHA.check_cipher();
    assert!(CHACHA.check_packet());
}
