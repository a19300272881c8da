// refork: n1=40 n2=24 l1=n1+1:inout w=(n1+1)*(n2+1) l2=n2+1:inout
#include <math.h>
void layer_forward(int n1, int n2, float *l1, const float *w, float *l2) {
    l1[0] = 1.0f;
    for (int j = 1; j <= n2; j++) {
        float sum = 0.0f;
        for (int k = 0; k <= n1; k++) sum += w[k * (n2 + 1) + j] * l1[k];
        l2[j] = 1.0f / (1.0f + expf(-sum));
    }
}
