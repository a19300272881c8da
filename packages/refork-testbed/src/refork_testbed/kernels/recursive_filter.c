// refork: w=40 h=30 in=w*h out=w*h:out back=w*h:out
void recursive_filter(int w, int h, const float *in, float *out, float *back) {
    int i, j;
    float y1, y2;
    for (i = 0; i < h; i++) {
        y1 = 0;
        y2 = 0;
        for (j = 0; j < w; j++) {
            out[i * w + j] = 0.4f * in[i * w + j] + 0.3f * y1 - 0.1f * y2;
            y2 = y1;
            y1 = out[i * w + j];
        }
    }
    for (i = 0; i < h; i++) {
        y1 = 0;
        y2 = 0;
        for (j = w - 1; j >= 0; j--) {
            back[i * w + j] = 0.4f * in[i * w + j] + 0.3f * y1 - 0.1f * y2;
            y2 = y1;
            y1 = back[i * w + j];
        }
    }
}
