// refork: n=777 x=n y=n:out
void pointer_scale(int n, const float *x, float *y) {
    const float *end = x + n;
    while (x < end) *y++ = 2.5f * *x++ + 1.0f;
}
