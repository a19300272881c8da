// refork: w=24 h=20 out=w*h:out
void escape_times(int w, int h, int *out) {
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int re = (x * 3 * 4096) / (w + 1) - 2 * 4096, im = (y * 2 * 4096) / (h + 1) - 4096, a = 0, b = 0, k = 0;
            while (k < 60 && (long)a * a + (long)b * b < 4l * 4096 * 4096) {
                int t = (int)(((long)a * a - (long)b * b) / 4096) + re;
                b = (int)((2l * a * b) / 4096) + im;
                a = t;
                k++;
            }
            out[y * w + x] = k;
        }
}
