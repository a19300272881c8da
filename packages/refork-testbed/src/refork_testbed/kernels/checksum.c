// refork: n=700 data=n:in:index:256
unsigned checksum(int n, const unsigned char *data) {
    unsigned crc = 0xffffffffu;
    for (int i = 0; i < n; i++) {
        crc ^= data[i];
        for (int b = 0; b < 8; b++) crc = crc & 1 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}
